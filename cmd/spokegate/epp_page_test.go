package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// pickerSite is a picker with two workers, and its pages.
func pickerSite(t *testing.T, with ...func(*fleet.Worker)) (p *epp.Picker, address string) {
	t.Helper()
	current, f := &policy.Current{}, fleet.New()
	snap := snapshot(t)
	current.Store(snap)
	endpoint := snap.Endpoints()[0].Name
	snap.Endpoints()[0].Routing.AffinityWeight = 8
	for name, addr := range map[string]string{"gpu-1": "10.0.0.1:1", "gpu-2": "10.0.0.2:1"} {
		w := fleet.Worker{Name: name, Endpoint: endpoint, Addr: addr, Engine: "sim", Epoch: "1", State: fleet.Ready}
		for _, change := range with {
			change(&w)
		}
		if _, err := f.Join(w); err != nil {
			t.Fatal(err)
		}
	}
	f.Acked(map[string]uint64{endpoint: f.View().Version})
	p = epp.New(epp.Config{Fleet: f, Policy: current, Registerer: prometheus.NewRegistry()})
	ops := newOps(prometheus.NewRegistry(), func() report { return report{} }, pickerPages{p, current, "door-1", 1 << 20, ""}.pages()...)
	s := httptest.NewServer(ops.Handler)
	t.Cleanup(s.Close)
	return p, strings.TrimPrefix(s.URL, "http://")
}

func bodyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAPickIsExplainedAndNotMade: the page says what would be chosen and no word of the prompt, and nothing is booked or counted.
func TestAPickIsExplainedAndNotMade(t *testing.T) {
	p, address := pickerSite(t)
	before := p.Status()
	text, err := postBody(t.Context(), "http://"+address+"/epp/explain?path=/v1/chat/completions&model=m",
		strings.NewReader(`{"model":"whatever","messages":[{"role":"user","content":"the-secret-plan"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var e explanation
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Workers) != 2 || e.Text != "unknown" || strings.Count(e.Explain, ": overlap 0") != 2 || !strings.Contains(e.Explain, e.Workers[0]+": overlap 0, prefill 1, decode 0, requests 0, cost 32 (chosen)") {
		t.Errorf("%+v", e)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("the prompt is told: %s", text)
	}
	after := p.Status()
	for _, st := range [][]epp.Endpoint{before, after} {
		for _, w := range st[0].Workers {
			if w.Requests != 0 || w.Prefill != 0 || st[0].Picks["picked"] != 0 {
				t.Errorf("%+v", w)
			}
		}
	}
}

// TestASessionIsExplained as it is picked for: a door's is its team's, of a picker without admission everybody's.
func TestASessionIsExplained(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	for _, c := range []struct {
		picked uint64
		query  string
		here   bool
	}{
		{router.SessionOf("web", "abc"), "&session=abc&team=web", true},
		{router.SessionOf("web", "abc"), "&session=abc&team=night", false},
		{router.SessionOf("web", "abc"), "&session=abc", false},
		{router.SessionOf("", "abc"), "&session=abc", true},
		{0, "&team=web", false},
	} {
		p, address := pickerSite(t)
		req, bad := openai.Scan(openai.Chat, []byte(body))
		if bad != nil {
			t.Fatal(bad)
		}
		choice, err := p.Pick(t.Context(), time.Now(), p.Status()[0].Name, router.Ask{Session: c.picked}, req, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		choice.Booking.Release()
		text, err := postBody(t.Context(), "http://"+address+"/epp/explain?path=/v1/chat/completions"+c.query, strings.NewReader(body))
		if err != nil || strings.Contains(string(text), "the session was here last") != c.here {
			t.Errorf("%s: %v, %s", c.query, err, text)
		}
	}
}

// TestAnExplanationSplits a prompt as a pick does, where some workers prefill for others.
func TestAnExplanationSplits(t *testing.T) {
	_, address := pickerSite(t, func(w *fleet.Worker) {
		w.Role = map[string]string{"gpu-1": fleet.RolePrefill, "gpu-2": fleet.RoleDecode}[w.Name]
	})
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 10_000) + `"}]}`
	text, err := postBody(t.Context(), "http://"+address+"/epp/explain?path=/v1/chat/completions", strings.NewReader(body))
	if err != nil || !strings.Contains(string(text), ", prefill elsewhere (chosen)") {
		t.Errorf("%v, %s", err, text)
	}
}

// TestPickerCommands say what is wrong, and with what.
func TestPickerCommands(t *testing.T) {
	_, address := pickerSite(t)
	page := func(body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	good := bodyFile(t, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	sick, err := json.Marshal(pickerStatus{Picker: "p", Endpoints: []epp.Endpoint{{Name: "e", Workers: []epp.Worker{{Name: "gpu-1", Index: epp.Degraded}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command role
		args    []string
		want    string // of the error
	}{
		"status":              {showPicker, []string{"-ops", address}, ""},
		"status as JSON":      {showPicker, []string{"-ops", address, "-o", "json"}, ""},
		"a degraded worker":   {showPicker, []string{"-ops", page(string(sick))}, "degraded: gpu-1"},
		"no picker":           {showPicker, []string{"-ops", page("{}")}, "has no picker"},
		"no folder":           {showPicker, []string{"-dir", filepath.Join(t.TempDir(), "x")}, "no door has run in"},
		"wrong output":        {showPicker, []string{"-ops", address, "-o", "yaml"}, "want text or json"},
		"explain":             {explainPick, []string{"-ops", address, "-file", good}, ""},
		"explain as JSON":     {explainPick, []string{"-ops", address, "-file", good, "-o", "json"}, ""},
		"another model":       {explainPick, []string{"-ops", address, "-file", good, "-model", "nobody's"}, `the policy has no model "nobody's"`},
		"no such path":        {explainPick, []string{"-ops", address, "-file", good, "-path", "/v2"}, "the picker answers 400"},
		"no body":             {explainPick, []string{"-ops", address, "-file", bodyFile(t, "")}, "the picker answers 400"},
		"too large":           {explainPick, []string{"-ops", address, "-file", bodyFile(t, strings.Repeat(" ", 1<<20+1))}, "the picker answers 413"},
		"no file":             {explainPick, []string{"-ops", address, "-file", filepath.Join(t.TempDir(), "x")}, "no such file"},
		"nobody to explain":   {explainPick, []string{"-ops", page("{}"), "-file", good}, "has no picker"},
		"a command that errs": {explainPick, []string{"-ops", address, "-file", good, "-o", "x"}, "want text or json"},
	} {
		err := c.command(context.Background(), c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPickerTable(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since, reported, rank := at.Add(-80*time.Second), int64(4096), 1
	st := pickerStatus{Picker: "door-1", At: at, Endpoints: []epp.Endpoint{{
		Name: "large", Blocks: 70, Held: 90, Picks: map[string]uint64{"picked": 12, "busy": 3}, Settings: epp.Settings{Busy: epp.Busy{DecodeShare: 0.85, Queue: 4}},
		Workers: []epp.Worker{
			{Name: "gpu-1", Address: "10.0.0.1:1", State: "ready", Pickable: true, Index: epp.Indexed, Since: &since, Held: 90, Prefill: 5, Decode: 7, Requests: 2, Others: 1,
				Last: &epp.Check{Best: 4096, Chosen: 4096, Reported: &reported}, Said: &epp.Report{Running: 2, Waiting: 1, CacheUsed: 0.71}},
			{Name: "gpu-2", Address: "10.0.0.2:1", Rank: &rank, State: "ready", Pickable: true, Index: epp.Degraded, Reason: "diverging: x", Since: &since, Parted: 11,
				Last: &epp.Check{Best: 32}, Busy: "queue 4 of 4"},
			{Name: "gpu-3", Address: "10.0.0.3:1", State: "starting", Index: epp.Predictive},
		}}, {Name: "small"}}}
	var out strings.Builder
	if err := st.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `endpoint large: picks: 12 picked, 3 busy, 0 without a worker, 0 none eligible; 70 blocks announced, held 90 times; busy at decode share 0.85, queue 4
  WORKER  ADDRESS            STATE     INDEX       SINCE  HELD  PREFILL  DECODE  REQUESTS  OTHERS  ENGINE   LAST CHECK      PARTED  BUSY
  gpu-1   10.0.0.1:1         ready     indexed     1m20s  90    5        7       2         1       2+1 71%  4096→4096→4096  0       -
  gpu-2   10.0.0.2:1 rank 1  ready     degraded    1m20s  0     0        0       0         0       -        32→0→?          11      queue 4 of 4
  gpu-3   10.0.0.3:1         starting  predictive  -      0     -        -       -         -       -        -               0       -
  gpu-2: degraded: diverging: x
endpoint small: picks: 0 picked, 0 busy, 0 without a worker, 0 none eligible; 0 blocks announced, held 0 times; never busy
  WORKER  ADDRESS  STATE  INDEX  SINCE  HELD  PREFILL  DECODE  REQUESTS  OTHERS  ENGINE  LAST CHECK  PARTED  BUSY
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
