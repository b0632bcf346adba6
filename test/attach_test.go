package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAttachByItself starts before a running engine without a policy: the demo's names the engine's models, with a key in
// the env file, and says that the engine is open to whoever reaches it.
func TestAttachByItself(t *testing.T) {
	t.Parallel()
	e := startEngine("their-model", "org/their-other:model")
	u := prepared(t, "attach-demo", func(o *upOptions) { o.engine = e })
	replaceFlag(u.cmd, "-policy", "")
	if err := u.begin(); err != nil {
		t.Fatal(err)
	}
	if err := u.awaitReady(); err != nil {
		t.Fatalf("%v\n%s", err, u.report())
	}
	u.ledger = newLedger(filepath.Join(u.dir, "spool"))
	key := u.envFile(t)["SPOKEGATE_KEY"]
	for _, model := range e.models {
		r := u.ok(t, post(key, "/v1/chat/completions", `{"model":"`+model+`","messages":[]}`, field{caseHeader, casePrefix + model}))
		got := once(t, "engine", e.got(casePrefix+model))
		if got.path != "/v1/chat/completions" || got.header.Get("X-Request-Id") != r.admission() {
			t.Errorf("the engine got %s with %v", got.path, got.header)
		}
		if rec := u.ledger.usage(t, r.admission()); rec.GetModel() != model || rec.GetCompletionTokens() != 3 {
			t.Errorf("the usage record is %v", rec)
		}
	}
	if list := u.ok(t, get(key, "/v1/models")); !strings.Contains(string(list.body), "their-model") || !strings.Contains(string(list.body), "org/their-other:model") {
		t.Errorf("the models are %s", list.body)
	}
	u.ok(t, get(key, "/v1/models/org/their-other:model"))
	if log, err := os.ReadFile(filepath.Join(u.dir, "log", "worker-1.log")); err != nil || !strings.Contains(string(log), "WARN") {
		t.Errorf("no warning that the engine is open to others: %v %s", err, log)
	}
	if err := u.stop(); err != nil {
		t.Error(err)
	}
}

// envFile reads what `up` writes for scripts.
func (u *up) envFile(t testing.TB) map[string]string {
	t.Helper()
	path := filepath.Join(u.dir, "env")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the env file, which holds a key: %v %v", st.Mode(), err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			t.Errorf("no NAME=value: %q", line)
		}
		env[name] = value
	}
	return env
}
