package ledger

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// served is a ledger with three requests of two teams, over HTTP.
func served(t *testing.T, database, tokenFile string) *httptest.Server {
	t.Helper()
	l := opened(t, Config{Database: database})
	for i, team := range []string{"research", "=cmd|' /C calc'!A0", "research"} {
		a, u, s := request(string(rune('a'+i)), time.Duration(i)*24*time.Hour, time.Minute)
		for _, r := range []*usagev1.Record{a, u, s} {
			r.Team = team
		}
		if u.Labels = map[string]string{"cost-center": "4711"}; i == 1 {
			u.Price, a.Price = nil, nil
		}
		take(t, l, a, u, s)
	}
	h := httptest.NewServer((&Server{Ledger: l, TokenFile: tokenFile}).Handler())
	t.Cleanup(h.Close)
	return h
}

// get answers a path, with headers "name: value".
func get(t *testing.T, h *httptest.Server, path string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, is := strings.Cut(line, ": ")
		if !is {
			continue
		}
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	res, err := h.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(body)
}

func TestAnswers(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		h := served(t, database, "")
		const amounts = `"requests":1,"repaired":0,"cut":0,"failed":0,"not_served":0,"unknown_tokens":0,"unknown_cost":0,"unserved":0,"differing":0,` +
			`"prompt_tokens":100,"cached_tokens":10,"completion_tokens":20,"reasoning_tokens":0,"undelivered_tokens":0,`
		for path, want := range map[string]string{
			"/v1/ledger?team=research&group=day": `{"bill":"generated","from":null,"to":null,"group":["day"],"rows":[` +
				`{"day":"2026-03-01","currency":"USD",` + amounts + `"cost":131},{"day":"2026-03-03","currency":"USD",` + amounts + `"cost":131}],"next":null}`,
			"/v1/ledger?from=2026-03-02&to=2026-03-02T10&group=label.cost-center": `{"bill":"generated","from":"2026-03-02T00:00:00Z","to":"2026-03-02T10:00:00Z",` +
				`"group":["label.cost-center"],"rows":[{"label.cost-center":"4711","currency":null,` + amounts + `"cost":null}],"next":null}`,
			"/v1/ledger?team=nobody":         `{"bill":"generated","from":null,"to":null,"group":[],"rows":[],"next":null}`,
			"/v1/ledger?label.cost-center=x": `{"bill":"generated","from":null,"to":null,"group":[],"rows":[],"next":null}`,
			"/v1/ledger?label.x%22y=x":       `{"error":{"message":"there is no parameter \"label.x\\\"y\": want team, key, model, label.NAME, from, to, group, limit, after or format"}}`,
			"/v1/ledger?team=research&team=x&key=k&model=m&limit=1&group=month": strings.Replace(`{"bill":"generated","from":null,"to":null,"group":["month"],"rows":[`+
				`{"month":"2026-03","currency":"USD",`+amounts+`"cost":262}],"next":null}`, amounts, strings.NewReplacer(":1,", ":2,", ":100,", ":200,", ":10,", ":20,", ":20,", ":40,").Replace(amounts), 1),
		} {
			if _, _, got := get(t, h, path); got != want+"\n" {
				t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
			}
		}
		const csv = "team,currency,requests,repaired,cut,failed,not_served,unknown_tokens,unknown_cost,unserved,differing,prompt_tokens,cached_tokens,completion_tokens,reasoning_tokens,undelivered_tokens,cost\n" +
			"'=cmd|' /C calc'!A0,,1,0,0,0,0,0,0,0,0,100,10,20,0,0,\nresearch,USD,2,0,0,0,0,0,0,0,0,200,20,40,0,0,262\n"
		for _, how := range [][2]string{{"&format=csv", ""}, {"", "Accept: text/csv"}, {"", "Accept: text/csv, application/json;q=0.5"}} {
			_, header, got := get(t, h, "/v1/ledger?group=team"+how[0], how[1])
			if got != csv || !strings.HasPrefix(header.Get("Content-Type"), "text/csv") {
				t.Errorf("%q: %s\n%s", how, header.Get("Content-Type"), got)
			}
		}
		_, header, got := get(t, h, "/v1/ledger?group=team&format=csv&limit=1")
		if strings.Count(got, "\n") != 2 || header.Get("X-Next-After") == "" {
			t.Errorf("one row of CSV: %s, next %q", got, header.Get("X-Next-After"))
		}
		_, _, rest := get(t, h, "/v1/ledger?group=team&format=csv&after="+header.Get("X-Next-After"))
		if !strings.HasSuffix(csv, rest[strings.Index(rest, "\n")+1:]) || strings.Count(rest, "\n") != 2 {
			t.Errorf("the row after: %s", rest)
		}
	})
}

func TestBadQuestions(t *testing.T) {
	h := served(t, t.TempDir()+"/l.db", "")
	for query, want := range map[string]string{
		"from=yesterday":                   `from \"yesterday\": want one time, such as 2026-01`,
		"from=2026-01-01&from=2026-01-02":  "want one time",
		"from=2026-01-01T10:30:00Z":        "sums are by the hour (UTC)",
		"from=1960-01-01":                  "since 1970",
		"from=2026-01-02&to=2026-01-02":    "is not before to",
		"group=team,color":                 `group \"color\": want some of`,
		"group=":                           `group \"\": want some of`,
		"group=team,team":                  "is there twice",
		"group=label.a%27b":                "want some of",
		"limit=0":                          "want a number from 1 to 10000",
		"limit=99999999999999999999":       "want a number",
		"teams=x":                          "there is no parameter",
		"format=xml":                       "want json or csv",
		"after=x":                          "want what an answer has in next",
		"after=bnVsbA":                     "want what an answer has in next",
		"group=team,key&after=WyJhIiwiIl0": "of an answer with another group",
		"after=WyJcdTAwMDAiXQ":             "zero byte",
		"team=%zz":                         "the query cannot be read",
		"a=1;b=2":                          "the query cannot be read",
	} {
		status, _, got := get(t, h, "/v1/ledger?"+query)
		if status != http.StatusBadRequest || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want 400 with %s", query, status, got, want)
		}
	}
	if status, _, got := get(t, h, "/v1/state?x=1"); status != http.StatusBadRequest {
		t.Errorf("state: %d %s", status, got)
	}
	if status, _, _ := get(t, h, "/elsewhere"); status != http.StatusNotFound {
		t.Errorf("elsewhere: %d", status)
	}
}

// TestHostileTexts go through the database and back as what they are, on both.
func TestHostileTexts(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		h := httptest.NewServer((&Server{Ledger: l}).Handler())
		defer h.Close()
		hostile := []string{`'; DROP TABLE totals; --`, `<script>alert(1)</script>`, "a?b$1", strings.Repeat("ü", 3000), `"`, `\`, "\u2028", "a\x01b"}
		for i, s := range hostile {
			_, u, _ := request(string(rune('a'+i)), 0, time.Minute)
			u.Team, u.Key, u.Model, u.Labels = s, s, s, map[string]string{"n": s, s: "x"}
			take(t, l, u)
		}
		_, _, body := get(t, h, "/v1/ledger?group=team,key,model,label.n")
		var got struct{ Rows []map[string]any }
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Rows) != len(hostile) {
			t.Fatal(err, body)
		}
		for _, s := range hostile {
			found := false
			for _, r := range got.Rows {
				found = found || r["team"] == s && r["key"] == s && r["model"] == s && r["label.n"] == s
			}
			if !found {
				t.Errorf("%q is not there as it is", s)
			}
		}
		if strings.Contains(body, "<script>") {
			t.Error("markup stands in the answer as it is")
		}
	})
}

func TestWhoMayAsk(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/token"
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0123456789abcdefghij\n")
	h := served(t, dir+"/l.db", file)
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{"/v1/ledger", "", 401},
		{"/v1/state", "", 401},
		{"/v1/ledger", "Authorization: Bearer 0123456789abcdefghij", 200},
		{"/v1/ledger", "Authorization: Bearer 0123456789abcdefghi", 401},
		{"/v1/ledger", "Authorization: 0123456789abcdefghij", 401},
		{"/", "", 200}, // it tells nothing
		{"/page.js", "", 200},
	} {
		status, header, body := get(t, h, c.path, c.header)
		if status != c.status {
			t.Errorf("%s, %q: %d %s, want %d", c.path, c.header, status, body, c.status)
		}
		if status == 401 && header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
	}
	write("another-token-of-20-c")
	if status, _, _ := get(t, h, "/v1/ledger", "Authorization: Bearer another-token-of-20-c"); status != 200 {
		t.Errorf("the new token: %d", status)
	}
	write("short")
	if status, _, body := get(t, h, "/v1/ledger", "Authorization: Bearer short"); status != 503 {
		t.Errorf("a bad file: %d %s", status, body)
	}
	open := served(t, dir+"/l2.db", "")
	for host, want := range map[string]int{"localhost:9600": 200, "127.0.0.1": 200, "[::1]:9600": 200, "evil.example": 403, "127.0.0.1.evil.example:9600": 403} {
		if status, _, _ := get(t, open, "/v1/ledger", "Host: "+host); status != want {
			t.Errorf("without a token, as %s: %d, want %d", host, status, want)
		}
	}
}

func TestState(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		h := httptest.NewServer((&Server{Ledger: l}).Handler())
		defer h.Close()
		old, _, _ := request("old", 0, 0)
		young, _, _ := request("young", 23*time.Hour+30*time.Minute, 0)
		_, used, _ := request("used", 0, time.Minute)
		at := timestamppb.New(start)
		take(t, l, old, young, used,
			&usagev1.Record{Id: "write-off/worker/x", Kind: "balance", Source: "repair/x", Epoch: 1, Sequence: 1, EndedAt: at},
			&usagev1.Record{Id: "balance/1/all/all/all", Kind: "balance", Source: "balance/x", Epoch: 1, Sequence: 2, EndedAt: timestamppb.New(start.Add(time.Second)), Balance: &usagev1.Balance{Admitted: 7, MissingUsage: 2}},
			&usagev1.Record{Id: "balance/1/all/door/all", Kind: "balance", Source: "balance/x", Epoch: 1, Sequence: 3, EndedAt: at, Balance: &usagev1.Balance{Of: "door/a"}},
			&usagev1.Record{Id: "checkpoint/x", Kind: "checkpoint", Source: "door/a", Epoch: 1, Sequence: 3})
		_, _, body := get(t, h, "/v1/state?from=2026-03-01")
		var got State
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err, body)
		}
		if got.Open != 1 || got.Missing != 1 || len(got.Oldest) != 1 || got.Oldest[0].Admission != "old" || got.Oldest[0].Team != "t" || !got.Oldest[0].At.Equal(start) {
			t.Errorf("%+v", got)
		}
		if len(got.Told) != 2 || !strings.Contains(string(got.Told[0].Body), `"missing_usage":2`) || !strings.Contains(string(got.Told[1].Body), "write-off/worker/x") {
			t.Errorf("%s", got.Told)
		}
		if !strings.Contains(body, `"sums":[{"currency":"USD","requests":1,`) || !strings.Contains(body, `"unserved":1`) {
			t.Error(body)
		}
	})
}
