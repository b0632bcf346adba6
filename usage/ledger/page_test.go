package ledger

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// TestPage: the page loads nothing from elsewhere, has no script or style inside, and every id that its script looks for.
func TestPage(t *testing.T) {
	l := opened(t, Config{Database: t.TempDir() + "/l.db"})
	h := httptest.NewServer((&Server{Ledger: l}).Handler())
	defer h.Close()
	_, header, body := get(t, h, "/")
	if p := header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; script-src 'self';") {
		t.Errorf("Content-Security-Policy: %s", p)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var ids, assets []string
	for n := range root.Descendants() {
		if n.Data == "style" || n.Data == "script" && n.FirstChild != nil {
			t.Errorf("a %s stands in the page", n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				ids = append(ids, a.Val)
			case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
				t.Errorf("%s has %s, which no browser runs under the policy", n.Data, a.Key)
			case a.Key == "src" || a.Key == "href" && n.Data == "link":
				assets = append(assets, a.Val)
			}
		}
	}
	if !slices.Equal(assets, []string{"page.css", "plot.js", "page.js"}) {
		t.Errorf("assets: %q", assets)
	}
	script := ""
	for _, a := range assets {
		status, header, text := get(t, h, "/"+a)
		if status != 200 || strings.Contains(header.Get("Content-Type"), "html") || regexp.MustCompile(`https?://`).MatchString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")) {
			t.Errorf("%s: %d, %s, or it names another place", a, status, header.Get("Content-Type"))
		}
		script += text
	}
	for _, m := range regexp.MustCompile(`\$\("([a-z-]+)"\)`).FindAllStringSubmatch(script, -1) {
		if !slices.Contains(ids, m[1]) {
			t.Errorf("the script looks for #%s, which is not there", m[1])
		}
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("} {
		if strings.Contains(script, bad) {
			t.Errorf("the script uses %s", bad)
		}
	}
}

// TestPageKnowsAnswers: what the script reads of an answer is in the answer, also where there is no data.
func TestPageKnowsAnswers(t *testing.T) {
	script, err := page.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	members := func(of string) (list []string) {
		for _, m := range regexp.MustCompile(of+`\.([a-z_]+)\b`).FindAllStringSubmatch(string(script), -1) {
			list = append(list, m[1])
		}
		return list
	}
	l := opened(t, Config{Database: t.TempDir() + "/l.db"})
	h := httptest.NewServer((&Server{Ledger: l}).Handler())
	defer h.Close()
	var state map[string]any
	_, _, body := get(t, h, "/v1/state")
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing", "open", "overdue", "oldest", "sums", "bill", "records", "refused", "balances"} {
		if state[name] == nil {
			t.Errorf("the state of an empty ledger has no %s: %s", name, body)
		}
		if !slices.Contains(members(`\bs`), name) {
			t.Errorf("the script does not read %s", name)
		}
	}
	for _, name := range members(`s\.records`) {
		if _, is := state["records"].(map[string]any)[name]; !is {
			t.Errorf("the script reads records.%s, which is not there", name)
		}
	}
	_, u, _ := request("a", 0, time.Minute)
	take(t, l, u)
	var answer struct{ Rows []map[string]any }
	_, _, body = get(t, h, "/v1/ledger?group=hour,team")
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Rows) != 1 {
		t.Fatal(err, body)
	}
	read := members(`\br`)
	for _, m := range regexp.MustCompile(`sum\("([a-z_]+)"\)`).FindAllStringSubmatch(string(script), -1) {
		read = append(read, m[1])
	}
	for _, name := range read {
		if _, is := answer.Rows[0][name]; !is && !slices.Contains([]string{"at", "reason", "id", "origin", "what", "map"}, name) {
			t.Errorf("the script reads %s of a row, which is not there", name)
		}
	}
}
