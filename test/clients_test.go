package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// clientsLimit is the body limit of the installations that the matrix of clients uses.
const clientsLimit = 8 << 20

// clientTokens a minute are to be had with some keys of these.
const clientTokens = 200

// clientSite is an installation before simulated engines, as clients reach it.
type clientSite struct {
	*up
	url, roots string // roots: a file of whom to trust; empty: plain HTTP
	http2      bool   // whether clients offer it
	cases      string // how the names of the engine's scripts begin
}

// clientSites are between them: both pickers, HTTP/1.1 and HTTP/2, plain and TLS.
func eachClientSite(t *testing.T, test func(t *testing.T, s clientSite)) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		test(t, plainSite(t))
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		test(t, tlsSite(t))
	})
}

func plainSite(t testing.TB) clientSite {
	u := lab.use(t, "clients-plain", func() upOptions {
		return upOptions{policy: clientsPolicy(), picker: "ext_proc", rates: ratesFile(t), workers: 2, more: []string{"-body-limit", fmt.Sprint(clientsLimit)}}
	})
	return clientSite{up: u, url: "http://" + u.listen, cases: casePrefix + "plain/"}
}

func tlsSite(t *testing.T) clientSite {
	dir := filepath.Join(lab.temp, "clients-tls")
	u := lab.use(t, "clients-tls", func() upOptions {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key, _ := certificate(t, dir, 1)
		return upOptions{policy: clientsPolicy(), picker: "admission", rates: ratesFile(t), workers: 2,
			more: []string{"-body-limit", fmt.Sprint(clientsLimit), "-tls-cert", cert, "-tls-key", key}}
	})
	return clientSite{up: u, url: "https://" + u.listen, roots: filepath.Join(dir, "cert.pem"), http2: true, cases: casePrefix + "tls/"}
}

// clientsPolicy has a key for each client that meets a limit.
func clientsPolicy() *policyText {
	keys := map[string]string{"main": "team: t1", "small-only": "team: t1, models: [sim-small]"}
	for _, client := range []string{"openai", "anthropic", "langchain", "go"} {
		keys["rated-"+client] = "team: t1, limits: [{requests_per_second: 0.1, burst: 1}]"
		keys["tokens-"+client] = fmt.Sprintf("team: t1, limits: [{tokens_per_minute: %d}]", clientTokens)
		keys["quota-"+client] = "team: t1, limits: [{requests_per_day: 1}]"
	}
	return newPolicy(`
platform: {tokens: {output_most: 50}}
endpoints: [{name: sim}]
models:
  - {name: sim-small, endpoint: sim}
  - {name: sim-large, endpoint: sim}
teams:
  - {name: t1, models: ["sim-*"]}
`, keys)
}

// clientSaid is what a client was told of one request. What is absent it was not told.
type clientSaid struct {
	Case      string
	Error     string // of the case itself
	ID        string
	ClientID  string `json:"client_id"` // in place of ID, where the client got no answer
	Operation string
	Stream    bool
	Outcome   string // "refused": there must be no record
	Status    uint32

	Prompt, Cached, Completion *int64
	RequestBytes               *int64 `json:"request_bytes"`
}

// runClient runs a script of the matrix with the keys of a client, and compares what its client was told with the journals of the site and of the
// engine before which u stands.
func runClient(t *testing.T, script string, s clientSite, client string, engine *up) {
	t.Helper()
	awayFromMidnight()
	s.cases += script + "/"
	scriptEngine(engine.engine, s.cases)
	for _, line := range s.runScript(t, script, client, engine) {
		t.Run(line.Case, func(t *testing.T) {
			if line.Error != "" {
				t.Fatal(line.Error)
			}
			from := s.ledger
			if line.ClientID == "" && engine.ledger.knows(line.ID) {
				from = engine.ledger
			}
			line.compare(t, from)
		})
	}
}

func (s clientSite) runScript(t *testing.T, script, client string, engine *up) []clientSaid {
	t.Helper()
	python := filepath.Join(lab.root, ".tools", "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatal("the Python clients are missing: run `make e2e`, which installs test/clients/requirements.txt into .tools/venv")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("clients", script+".py"))
	cmd.Env = append(os.Environ(), "SPOKEGATE_URL="+s.url, "SPOKEGATE_KEY="+s.key("main"), "SPOKEGATE_KEY_SMALL="+s.key("small-only"),
		"SPOKEGATE_KEY_RATED="+s.key("rated-"+client), "SPOKEGATE_KEY_TOKENS="+s.key("tokens-"+client), "SPOKEGATE_TOKENS="+fmt.Sprint(clientTokens),
		"SPOKEGATE_KEY_QUOTA="+s.key("quota-"+client), "SPOKEGATE_ENGINE_URL=http://"+engine.listen, "SPOKEGATE_ENGINE_KEY="+engine.key("main"),
		"SPOKEGATE_CASES="+s.cases, "LANGSMITH_TRACING=false", "PYTHONDONTWRITEBYTECODE=1")
	if s.http2 {
		cmd.Env = append(cmd.Env, "SPOKEGATE_HTTP2=1")
	}
	if s.roots != "" {
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+s.roots)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs.String())
	}
	var all []clientSaid
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var line clientSaid
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		all = append(all, line)
	}
	if len(all) == 0 {
		t.Fatalf("%s told nothing: %s", script, errs.String())
	}
	return all
}

// knows waits for nothing: a client that was told an id was admitted before.
func (l *ledger) knows(admission string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[admission] != nil
}

// compare wants the one usage record to say what the client was told, and nothing odd of a request that ended well.
func (c clientSaid) compare(t *testing.T, l *ledger) {
	t.Helper()
	if c.Outcome == "refused" {
		l.refused(c.ID)
		return
	}
	if c.ClientID != "" {
		c.ID = l.admissionOf(t, c.ClientID)
	}
	rec := l.usage(t, c.ID)
	prompt, cached, completion, odd := rec.PromptTokens, rec.CachedTokens, rec.CompletionTokens, len(rec.GetAnomalies()) > 0
	if a := rec.GetAnomalies(); slices.Contains(a, "meter_cut") || slices.Contains(a, "unmetered") {
		// The door was too slow to count, as happens on a busy machine: *served* stands in.
		shim := l.served(t, c.ID)
		t.Logf("not counted by the door: %s", usage.AppendJSON(nil, rec))
		prompt, cached, completion, odd = shim.PromptTokens, shim.CachedTokens, shim.CompletionTokens, len(shim.GetAnomalies()) > 0
	}
	told := func(what, journaled *int64) bool { return what == nil || journaled != nil && *what == *journaled }
	if !told(c.Prompt, prompt) || !told(c.Cached, cached) || !told(c.Completion, completion) ||
		c.Outcome != rec.GetOutcome() || c.Operation != "" && c.Operation != rec.GetOperation() || c.Status != 0 && c.Status != rec.GetStatus() ||
		c.ClientID == "" && c.Stream != rec.GetStream() || c.RequestBytes != nil && *c.RequestBytes != rec.GetRequestBytes() ||
		c.Outcome == usage.OutcomeComplete && odd {
		t.Errorf("the client was told %s; the record is %s", c, usage.AppendJSON(nil, rec))
	}
}

func (c clientSaid) String() string {
	b, _ := json.Marshal(c) // of plain values
	return string(b)
}

// admissionOf waits for the admission of a request that its client named.
func (l *ledger) admissionOf(t *testing.T, clientID string) string {
	t.Helper()
	var found *usagev1.Record
	eventually(t, journalPatience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range l.entries {
			if len(e.usage) > 0 && e.usage[0].GetClientRequestId() == clientID {
				found = e.usage[0]
				return nil
			}
		}
		return fmt.Errorf("no usage of a request that its client named %q", clientID)
	})
	return found.GetAdmission()
}

// TestClientOpenAI uses the official Python client for all that it can do.
func TestClientOpenAI(t *testing.T) {
	t.Parallel()
	eachClientSite(t, func(t *testing.T, s clientSite) {
		runClient(t, "openai_features", s, "openai", attached(t, "admission"))
	})
}

// TestClientOpenAILife lets happen to the official Python client what happens in life.
func TestClientOpenAILife(t *testing.T) {
	t.Parallel()
	eachClientSite(t, func(t *testing.T, s clientSite) {
		runClient(t, "openai_life", s, "openai", attached(t, pickers[len(s.roots)%2]))
	})
}

// TestClientAnthropic uses Anthropic's Python client.
func TestClientAnthropic(t *testing.T) {
	t.Parallel()
	eachClientSite(t, func(t *testing.T, s clientSite) {
		runClient(t, "anthropic_sdk", s, "anthropic", attached(t, "admission"))
	})
}

// TestClientLangChain uses LangChain's ChatOpenAI.
func TestClientLangChain(t *testing.T) {
	t.Parallel()
	eachClientSite(t, func(t *testing.T, s clientSite) {
		runClient(t, "langchain_openai_chat", s, "langchain", attached(t, "ext_proc"))
	})
}
