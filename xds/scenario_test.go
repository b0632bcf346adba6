package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/policy"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScenarios plays testdata: a real file, a real folder, and restarts. The commands are the methods of spoke.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		dir := t.TempDir()
		s := &spoke{t: t, root: dir, file: filepath.Join(dir, "policy.yaml"), dir: filepath.Join(dir, "last-good")}
		t.Cleanup(s.stop)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return temporary.ReplaceAllString(strings.ReplaceAll(s.do(d), dir+"/", ""), "$1")
		})
	})
}

// temporary is the random part of a temporary file's name.
var temporary = regexp.MustCompile(`(\.new-policy-)[0-9]+`)

// spoke is one spoke's agent with its file and its folder, over several lives.
type spoke struct {
	t       *testing.T
	root    string
	file    string
	dir     string
	current *policy.Current
	agent   *Agent
	answers chan string
	end     func()
}

func (s *spoke) do(d *datadriven.TestData) string {
	switch d.Cmd {
	case "start": // a new process on the same folder
		return s.start()
	case "stop":
		s.stop()
		return ""
	case "write": // the whole file at once, as editors do that rename; then the answer, if somebody is there to give it
		s.write(policyText(d.Input))
		return s.answer(!d.HasArg("same"))
	case "truncate":
		s.must(os.Truncate(s.file, 0))
		return s.answer(true)
	case "revoke", "undo":
		s.revoke(d)
		return ""
	case "keys": // what is said of each
		return s.keys(d)
	case "remove":
		if d.HasArg("revoked") {
			return s.revokedFile(os.Remove)
		}
		s.must(os.Remove(s.file))
		return s.answer(true)
	case "damage": // newest or all, or the list of revoked keys
		if d.HasArg("revoked") {
			return s.revokedFile(func(path string) error { return os.Truncate(path, 90) })
		}
		return s.damage(d.HasArg("all"))
	case "block": // the disk does not take this revision
		s.must(os.Mkdir(s.saved(d), 0o700))
		return ""
	case "unblock": // and the agent tries again by itself
		s.must(os.Remove(s.saved(d)))
		for {
			if a := s.answer(true); strings.HasPrefix(a, "ACK") {
				return a
			}
		}
	case "status":
		return s.status()
	case "disk":
		return s.disk()
	}
	s.t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

// policyText completes a short policy: each word is a key with its hash, "!" before it revokes it.
func policyText(in string) string {
	words, ok := strings.CutPrefix(strings.TrimSpace(in), "keys:")
	if !ok {
		return in
	}
	var b strings.Builder
	b.WriteString("models: [{name: m, endpoint: e}]\nendpoints: [{name: e}]\nteams: [{name: t, models: [m]}]\nkeys:\n")
	for _, w := range strings.Fields(words) {
		id, revoked := strings.CutPrefix(w, "!")
		fmt.Fprintf(&b, "  - {id: %s, team: t, sha256: \"%064x\", revoked: %v}\n", id, id, revoked)
	}
	return b.String()
}

func (s *spoke) start() string {
	s.stop()
	file := NewFile(s.file, slog.New(slog.DiscardHandler))
	file.Every = time.Millisecond
	s.answers = make(chan string, 100)
	s.current = &policy.Current{}
	s.agent = NewAgent(s.dir, s.current, &tap{file, s.answers}, Options{
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Now: func() time.Time { return t0 }, Patience: time.Minute,
	})
	s.agent.every = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	if err := s.agent.Start(ctx); err != nil {
		cancel()
		s.agent = nil
		return "refuses to start: " + err.Error() + "\n"
	}
	done := make(chan error, 1)
	go func() { done <- s.agent.Run(ctx) }()
	s.end = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
	return s.answer(true) + s.status()
}

func (s *spoke) stop() {
	if s.end != nil {
		s.end()
	}
	s.end, s.agent = nil, nil
}

func (s *spoke) write(text string) {
	s.must(os.WriteFile(s.file+".new", []byte(text), 0o600))
	s.must(os.Rename(s.file+".new", s.file))
}

// answer waits for the source's next answer.
func (s *spoke) answer(expected bool) string {
	if s.agent == nil || !expected {
		return ""
	}
	select {
	case a := <-s.answers:
		return a + "\n"
	case <-time.After(patience):
		s.t.Fatal("no answer")
		return ""
	}
}

func (s *spoke) damage(all bool) string {
	names, err := filepath.Glob(filepath.Join(s.dir, "policy-*"))
	s.must(err)
	if !all {
		names = names[len(names)-1:]
	}
	for _, name := range names {
		s.must(os.Truncate(name, 100))
	}
	return ""
}

func (s *spoke) status() string {
	st, snap, m := s.agent.Status(), s.current.Load(), s.agent.metrics
	if snap.Digest() != st.Digest || snap.Revision() != st.Revision || st.Since != t0 || (st.LastNack == "") != st.LastNackAt.IsZero() {
		s.t.Errorf("status %+v, but revision %d %s is in force", st, snap.Revision(), snap.Digest())
	}
	if testutil.ToFloat64(m.revision) != float64(st.Revision) {
		s.t.Errorf("metric says revision %v, status %d", testutil.ToFloat64(m.revision), st.Revision)
	}
	if testutil.ToFloat64(m.revoked) != float64(st.Revoked) {
		s.t.Errorf("metric says %v revoked, status %d", testutil.ToFloat64(m.revoked), st.Revoked)
	}
	out := fmt.Sprintf("revision %d, %d keys, from %s, from disk only: %v; %v nacks, ever acked: %v", st.Revision, snap.Keys(), st.From, st.FromDisk,
		testutil.ToFloat64(m.nacks), testutil.ToFloat64(m.lastAck) == float64(t0.Unix()))
	if st.Revoked > 0 {
		out += fmt.Sprint(", revoked here: ", st.Revoked)
	}
	out += "\n"
	if st.RevokedErr != "" {
		out += st.RevokedErr + "\n"
	}
	if st.LastNack != "" {
		out += "last nack: " + st.LastNack + "\n"
	}
	return out
}

// saved is the name of the file for the revision that a command names.
func (s *spoke) saved(d *datadriven.TestData) string {
	return filepath.Join(s.dir, fmt.Sprintf("policy-%020s.pb", d.CmdArgs[0].Key))
}

// disk is what a restart would find.
func (s *spoke) disk() string {
	cut, err := policy.Load(s.dir)
	var b bytes.Buffer
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	if cut != nil {
		set, err := cut.Set()
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "revision %d, %d keys\n", set.Revision.Number, len(policy.Keys(set)))
	}
	return b.String()
}

func (s *spoke) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// tap is a file source whose answers are heard.
type tap struct {
	*File
	answers chan string
}

func (t *tap) Ack(revision uint64) {
	t.File.Ack(revision)
	t.answers <- fmt.Sprintf("ACK %d", revision)
}

func (t *tap) Nack(reason string, again bool) {
	t.File.Nack(reason, again)
	t.answers <- fmt.Sprintf("NACK %s (again: %v)", reason, again)
}
