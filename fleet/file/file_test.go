package file

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
	"github.com/spokegate/spokegate/fleet/scrape"
)

func TestParse(t *testing.T) {
	list, err := Parse([]byte(`
workers:
- name: a
  address: 10.0.0.1:8000
- {name: b, address: "[2001:db8::1]:8000", engine: vllm, block_size: 32, metrics: /v2/metrics, kv_events: "tcp://*:5557", kv_replay: "tcp://10.0.0.9:5558"}
- {name: c, address: 10.0.0.3:8000, role: prefill, ranks: 8}
- {name: d, address: 10.0.0.4:8000, engine: sglang, role: decode, ranks: 1}
`), "large")
	if err != nil {
		t.Fatal(err)
	}
	want := []roster.Worker{
		{Target: scrape.Target{Worker: fleet.Worker{Name: "a", Endpoint: "large", Addr: "10.0.0.1:8000", Engine: "attached", State: fleet.Starting}}},
		{Target: scrape.Target{Worker: fleet.Worker{Name: "b", Endpoint: "large", Addr: "[2001:db8::1]:8000", Engine: "vllm", BlockSize: 32, State: fleet.Starting},
			Metrics: "/v2/metrics"}, Events: "tcp://*:5557", Replay: "tcp://10.0.0.9:5558"},
		{Target: scrape.Target{Worker: fleet.Worker{Name: "c", Endpoint: "large", Addr: "10.0.0.3:8000", Engine: "attached", Role: "prefill", Ranks: 8, State: fleet.Starting}}},
		{Target: scrape.Target{Worker: fleet.Worker{Name: "d", Endpoint: "large", Addr: "10.0.0.4:8000", Engine: "sglang", Role: "decode", Ranks: 1, State: fleet.Starting}}},
	}
	if !slices.Equal(list, want) {
		t.Errorf("%+v", list)
	}
	for _, empty := range []string{"workers: []", `{"workers": []}`} {
		if list, err := Parse([]byte(empty), "large"); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v", empty, list, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "workers is missing: a list, which may be empty ([])",
		"workers:\n":                    "workers is missing: a list, which may be empty ([])",
		"[]":                            "[1:1] sequence was used where mapping is expected",
		"workers: []\n---\nworkers: []": "there is more than one document",
		"workers: !0 0":                 "[1:10] tags, anchors, aliases and directives are not taken",
		"workers: &x\n- *x":             "[1:10] tags, anchors, aliases and directives are not taken",
		strings.Repeat("[", 1e4):        "[1:17] nested more than 16 levels deep",
		strings.Repeat("- ", 1e4):       "[1:33] nested more than 16 levels deep",
		"workers:\n- name: a\n  adress: 10.0.0.1:80\n":                                                                                 `[3:3] unknown field "adress"`,
		"workers:\n- name: a\n  name: b\n":                                                                                             `[3:3] mapping key "name" already defined at [2:3]`,
		"workers:\n- {name: a, address: 10.0.0.1:80, block_size: -1}":                                                                  "cannot unmarshal -1",
		"workers:\n- {name: A, address: 10.0.0.1:80}":                                                                                  `workers[0]: invalid worker: name "A"`,
		"workers:\n- {name: a, address: localhost:80}":                                                                                 `workers[0]: invalid worker: address "localhost:80": want ip:port`,
		"workers:\n- {name: a, address: 10.0.0.1:80, engine: ollama}":                                                                  `workers[0]: engine "ollama": want one of vllm, sglang, trtllm, sim, attached`,
		"workers:\n- {name: a, address: 10.0.0.1:80, metrics: metrics}":                                                                `workers[0]: metrics "metrics": want a path, as /metrics`,
		`workers: [{name: a, address: "10.0.0.1:80", kv_events: "ipc:///tmp/x"}]`:                                                      `workers[0]: kv_events "ipc:///tmp/x": want tcp://HOST:PORT`,
		"workers: [{name: a, address: '10.0.0.1:80', role: both}]":                                                                     `workers[0]: invalid worker: role "both": want prefill, decode or none`,
		"workers: [{name: a, address: '10.0.0.1:80', ranks: 1025}]":                                                                    "workers[0]: invalid worker: 1025 data-parallel ranks: want at most 1024",
		"workers: [{name: a, address: '10.0.0.1:80', ranks: -1}]":                                                                      "cannot unmarshal -1",
		"workers: [{name: a, address: '10.0.0.1:80', engine: sglang, ranks: 2}]":                                                       "workers[0]: ranks: sglang takes no rank from a request",
		`workers: [{name: a, address: "10.0.0.1:80", kv_replay: "tcp://*:5558"}]`:                                                      "workers[0]: kv_replay goes with kv_events",
		`{"workers":[{"name":"a","address":"10.0.0.1:80"},{"name":"a","address":"10.0.0.2:80"},{"name":"b","address":"10.0.0.1:80"}]}`: "workers[1]: name a: twice in this file\nworkers[2]: address 10.0.0.1:80 of a: twice in this file",
	} {
		if _, err := Parse([]byte(text), "large"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse: whatever is in the file, it is refused or it lists workers that a fleet takes.
func FuzzParse(f *testing.F) {
	f.Add("workers:\n- {name: a, address: 10.0.0.1:80, engine: vllm, block_size: 16}\n")
	f.Add(`{"workers":[{"name":"a","address":"[::1]:80","metrics":"/m"}]}`)
	f.Add("workers: &x\n- *x\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse([]byte(text), "large")
		if err != nil {
			return
		}
		into := fleet.New()
		for _, w := range list {
			if _, err := into.Join(w.Worker); err != nil {
				t.Error(err)
			}
		}
	})
}

// following is a source at work.
type following struct {
	*testing.T
	*Source
	fleet *fleet.Fleet
	stop  func()

	mu      sync.Mutex
	watched string // names, in order
}

func follow(t *testing.T) *following {
	f := &following{T: t, fleet: fleet.NewUnacknowledged()}
	f.Source = &Source{Path: filepath.Join(t.TempDir(), "workers.yaml"), Endpoint: "large", Every: 2 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Keeper: roster.Keeper{Fleet: f.fleet, Watch: func(_ context.Context, list []scrape.Target) {
			var names []string
			for _, w := range list {
				names = append(names, w.Worker.Name)
			}
			slices.Sort(names)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.watched = strings.Join(names, " ")
		}}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Source.Run(ctx) })
	f.stop = func() { cancel(); running.Wait() }
	t.Cleanup(f.stop)
	return f
}

// put renames a file into place.
func (f *following) put(lines ...string) {
	f.Helper()
	if err := os.WriteFile(f.Path+".new", []byte("workers:\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	if err := os.Rename(f.Path+".new", f.Path); err != nil {
		f.Fatal(err)
	}
}

func entry(name string, address int) string {
	return fmt.Sprintf("- {name: %s, address: 10.0.0.%d:80}", name, address)
}

// until waits for the fleet, for who is looked after, and for what is wrong.
func (f *following) until(want, problem string) {
	f.Helper()
	var got, watched, wrong string
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var all, names []string
		for _, w := range f.fleet.View().Workers {
			is := w.Name + "@" + w.Addr
			if w.Ranks > 0 {
				is += fmt.Sprintf("/%s/%d", w.Role, w.Ranks)
			}
			all = append(all, is)
			names = append(names, w.Name)
		}
		f.mu.Lock()
		watched = f.watched
		f.mu.Unlock()
		got, wrong = strings.Join(all, " "), f.Status().Problem
		if got == want && watched == strings.Join(names, " ") && (wrong == "") == (problem == "") && strings.Contains(wrong, problem) {
			return
		}
	}
	f.Fatalf("%q, looked after %q, problem %q; want %q, problem %q", got, watched, wrong, want, problem)
}

func TestTheFleetIsAsTheFileSays(t *testing.T) {
	f := follow(t)
	f.until("", "no such file")
	if f.Status().Read {
		t.Error("a file that is not there was read")
	}
	f.put(entry("a", 1), entry("b", 2))
	f.until("a@10.0.0.1:80 b@10.0.0.2:80", "")
	f.fleet.Update("a", fleet.Ready)
	f.put(entry("c", 3), entry("a", 1))
	f.until("a@10.0.0.1:80 c@10.0.0.3:80", "")
	if w := f.fleet.Pickable("large"); len(w) != 1 || w[0].Name != "a" {
		t.Errorf("who stays is not as it was: %v", w)
	}
	f.put("- {name: a, address: '10.0.0.1:80', role: decode, ranks: 2}", entry("c", 3))
	f.until("a@10.0.0.1:80/decode/2 c@10.0.0.3:80", "")
	f.put(entry("a", 3), entry("c", 1)) // they change places
	f.until("a@10.0.0.3:80 c@10.0.0.1:80", "")
	f.put(entry("a", 3), entry("c", 3))
	f.until("a@10.0.0.3:80 c@10.0.0.1:80", "workers[1]: address 10.0.0.3:80 of a: twice in this file")
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	f.until("a@10.0.0.3:80 c@10.0.0.1:80", "no such file")
	f.put("[]")
	f.until("", "")
	if st := f.Status(); !st.Read || st.Workers != 0 {
		t.Errorf("%+v", st)
	}
	f.put(entry("a", 1))
	f.until("a@10.0.0.1:80", "")
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.fleet.View().Workers) != 0 || f.watched != "" {
		t.Errorf("left behind: %v, looked after %q", f.fleet.View().Workers, f.watched)
	}
}

// TestAnotherHasTheName: the worker of the file joins when it is free.
func TestAnotherHasTheName(t *testing.T) {
	f := follow(t)
	f.until("", "no such file")
	leave, err := f.fleet.Join(fleet.Worker{Name: "b", Endpoint: "large", Addr: "10.0.0.9:80", State: fleet.Ready})
	if err != nil {
		t.Fatal(err)
	}
	f.put(entry("a", 1), entry("b", 2))
	for f.Status().Problem != "name b: taken by a worker that is alive" {
		time.Sleep(time.Millisecond)
	}
	if st := f.Status(); st.Workers != 1 || !st.Read {
		t.Errorf("%+v", st)
	}
	leave()
	f.until("a@10.0.0.1:80 b@10.0.0.2:80", "")
}

// TestHalfAFileIsNotRead: what is being written counts when it stands still.
func TestHalfAFileIsNotRead(t *testing.T) {
	s := &Source{Path: filepath.Join(t.TempDir(), "workers.yaml"), Endpoint: "large", Log: slog.New(slog.DiscardHandler),
		Keeper: roster.Keeper{Fleet: fleet.New(), Watch: func(context.Context, []scrape.Target) {}}}
	look := func(first bool, text string) string {
		if err := os.WriteFile(s.Path, []byte("workers:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.look(t.Context(), first)
		var names []string
		for _, w := range s.Fleet.View().Workers {
			names = append(names, w.Name)
		}
		return strings.Join(names, " ")
	}
	whole := entry("a", 1) + "\n" + entry("b", 2)
	for i, step := range []struct{ text, want string }{
		{whole, "a b"},         // the first look does not wait
		{entry("a", 1), "a b"}, // half of it
		{whole, "a b"},         // and whole again
		{entry("a", 1), "a b"}, //
		{entry("a", 1), "a"},   // it stands
		{whole, "a"},           //
		{"- {name: A}\n", "a"}, //
		{"- {name: A}\n", "a"}, // a mistake
		{whole, "a"}, {whole, "a b"},
	} {
		if got := look(i == 0, step.text); got != step.want {
			t.Fatalf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestALargeFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers.yaml")
	if err := os.WriteFile(path, []byte("#"+strings.Repeat("x", MaxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(path); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Error(err)
	}
}
