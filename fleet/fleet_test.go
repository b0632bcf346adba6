package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func worker(n int) Worker {
	return Worker{Name: fmt.Sprintf("w%d", n), Endpoint: "large", Addr: fmt.Sprintf("10.0.0.%d:8000", n), Engine: "sim", State: Starting}
}

// now is an Envoy that has the endpoint "large" as it is in the view, or as it was some versions ago.
func now(f *Fleet, ago ...uint64) map[string]uint64 {
	v := f.View().Version
	for _, n := range ago {
		v -= min(v, n)
	}
	return map[string]uint64{"large": v}
}

func names(ws []Worker) []string {
	var out []string
	for _, w := range ws {
		out = append(out, w.Name)
	}
	return out
}

func mustJoin(t *testing.T, f *Fleet, w Worker) func() {
	t.Helper()
	leave, err := f.Join(w)
	if err != nil {
		t.Fatalf("Join(%+v): %v", w, err)
	}
	return leave
}

func TestOnlyReadyAndAcknowledgedIsPickable(t *testing.T) {
	f := New()
	leave := mustJoin(t, f, worker(1))
	step := func(what string, want ...string) {
		t.Helper()
		if got := names(f.Pickable("large")); !slices.Equal(got, want) {
			t.Fatalf("%s: pickable %v, want %v", what, got, want)
		}
	}
	f.Acked(now(f))
	step("starting")
	f.Update("w1", Ready)
	step("ready, not acknowledged")
	f.Acked(now(f, 1))
	step("an older view acknowledged")
	f.Acked(now(f))
	step("acknowledged", "w1")
	f.Update("w1", Draining)
	step("draining")
	f.Update("w1", Ready)
	step("ready again: Envoy may have dropped it")
	f.Acked(map[string]uint64{"other": f.View().Version})
	step("another endpoint acknowledged: this one is not in the policy")
	f.Acked(now(f))
	step("acknowledged again", "w1")
	mustJoin(t, f, worker(2))
	step("a newcomer does not disturb the others", "w1")
	f.Update("w2", Ready)
	step("another is ready, not acknowledged", "w1")
	f.Acked(nil)
	step("the endpoint was taken from the policy")
	leave()
	step("gone")
}

// TestUnacknowledged: where nobody tells what the gateway knows, readiness alone decides.
func TestUnacknowledged(t *testing.T) {
	f := NewUnacknowledged()
	mustJoin(t, f, worker(1))
	if got := f.Pickable("large"); len(got) != 0 {
		t.Errorf("one that starts can be picked: %v", names(got))
	}
	f.Update("w1", Ready)
	f.Renew("w1", "second", 16, 100)
	f.Renew("stranger", "second", 16, 100)
	got := f.Pickable("large")
	if len(got) != 1 || got[0].Epoch != "second" || got[0].BlockSize != 16 || got[0].Blocks != 100 {
		t.Errorf("%+v", got)
	}
	was := f.View()
	if f.Renew("w1", "second", 16, 100); f.View() != was {
		t.Error("the same again made a new view")
	}
	f.Update("w1", Failed)
	if got := f.Pickable("large"); len(got) != 0 {
		t.Errorf("one that failed can be picked: %v", names(got))
	}
}

func TestJoinRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Worker)
		want   error
	}{
		"same name":         {func(w *Worker) { w.Addr = "10.0.0.9:1" }, ErrDuplicate},
		"same address":      {func(w *Worker) { w.Name = "other" }, ErrDuplicate},
		"mapped address":    {func(w *Worker) { w.Name, w.Addr = "other", "[::ffff:10.0.0.1]:8000" }, ErrDuplicate},
		"no name":           {func(w *Worker) { w.Name = "" }, ErrInvalid},
		"upper case":        {func(w *Worker) { w.Name = "W2" }, ErrInvalid},
		"long name":         {func(w *Worker) { w.Name = strings.Repeat("a", 65) }, ErrInvalid},
		"host name":         {func(w *Worker) { w.Addr = "localhost:80" }, ErrInvalid},
		"no port":           {func(w *Worker) { w.Addr = "10.0.0.2" }, ErrInvalid},
		"port 0":            {func(w *Worker) { w.Addr = "10.0.0.2:0" }, ErrInvalid},
		"any address":       {func(w *Worker) { w.Addr = "0.0.0.0:80" }, ErrInvalid},
		"link-local":        {func(w *Worker) { w.Addr = "169.254.169.254:80" }, ErrInvalid},
		"broadcast":         {func(w *Worker) { w.Addr = "255.255.255.255:80" }, ErrInvalid},
		"multicast":         {func(w *Worker) { w.Addr = "224.0.0.1:80" }, ErrInvalid},
		"zone":              {func(w *Worker) { w.Addr = "[fe80::1%eth0]:80" }, ErrInvalid},
		"no endpoint":       {func(w *Worker) { w.Endpoint = "" }, ErrInvalid},
		"role":              {func(w *Worker) { w.Role = "Prefill" }, ErrInvalid},
		"too many ranks":    {func(w *Worker) { w.Ranks = MaxRanks + 1 }, ErrInvalid},
		"blank in endpoint": {func(w *Worker) { w.Endpoint = "a b" }, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			f := New()
			mustJoin(t, f, worker(1))
			w := worker(1)
			if c.want == ErrInvalid {
				w = worker(2)
			}
			c.change(&w)
			if _, err := f.Join(w); !errors.Is(err, c.want) {
				t.Fatalf("Join(%+v) = %v, want %v", w, err, c.want)
			}
			if got := names(f.View().Workers); !slices.Equal(got, []string{"w1"}) {
				t.Fatalf("a refused worker is in the view: %v", got)
			}
		})
	}
}

func TestAddressesAreCanonical(t *testing.T) {
	f := New()
	w := worker(1)
	w.Addr = "[2001:DB8:0:0::1]:80"
	mustJoin(t, f, w)
	if got := f.View().Workers[0].Addr; got != "[2001:db8::1]:80" {
		t.Fatalf("address %q", got)
	}
}

func TestFleetIsBounded(t *testing.T) {
	f := New()
	for i := range MaxWorkers {
		f.members[fmt.Sprint(i)] = &member{}
	}
	if _, err := f.Join(worker(1)); !errors.Is(err, ErrFull) {
		t.Fatalf("Join = %v, want ErrFull", err)
	}
}

func TestLateLeaveSparesTheSuccessor(t *testing.T) {
	f := New()
	leave := mustJoin(t, f, worker(1))
	leave()
	mustJoin(t, f, worker(1))
	leave()
	if len(f.View().Workers) != 1 {
		t.Fatal("the first worker's second leave removed its successor")
	}
}

func TestChangedWakesOnChangesThatMatter(t *testing.T) {
	f := New()
	mustJoin(t, f, worker(1))
	woken := func(do func()) bool {
		c := f.Changed()
		do()
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"ready", func() { f.Update("w1", Ready) }, true},
		{"the same again", func() { f.Update("w1", Ready) }, false},
		{"acknowledged", func() { f.Acked(now(f)) }, true},
		{"acknowledged again", func() { f.Acked(now(f)) }, false},
		{"a stranger", func() { f.Update("nobody", Ready) }, false},
	} {
		if got := woken(c.do); got != c.want {
			t.Errorf("%s: woken %v, want %v", c.what, got, c.want)
		}
	}
}

// TestAgainstTheObvious compares the fleet with a list that is searched anew each time.
func TestAgainstTheObvious(t *testing.T) {
	type entry struct {
		state   State
		readyAt uint64 // version at which it became what it is
		leave   func()
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	f, model := New(), map[string]*entry{}
	var acked uint64
	for range 5000 {
		w := worker(1 + rnd.IntN(8))
		e := model[w.Name]
		switch rnd.IntN(4) {
		case 0:
			leave, err := f.Join(w)
			if (err != nil) != (e != nil) {
				t.Fatalf("Join(%s) = %v, present %v", w.Name, err, e != nil)
			}
			if err == nil {
				model[w.Name] = &entry{Starting, f.View().Version, leave}
			}
		case 1:
			if e != nil {
				e.leave()
				delete(model, w.Name)
			}
		case 2:
			s := State(1 + rnd.IntN(5))
			f.Update(w.Name, s)
			if e != nil && e.state != s {
				e.state, e.readyAt = s, f.View().Version
			}
		case 3:
			held := now(f, uint64(rnd.IntN(3)))
			acked = held["large"]
			f.Acked(held)
		}
		var want []string
		for n, e := range model {
			if e.state == Ready && e.readyAt <= acked {
				want = append(want, n)
			}
		}
		slices.Sort(want)
		if got := names(f.Pickable("large")); !slices.Equal(got, want) {
			t.Fatalf("pickable %v, want %v", got, want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	f := New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			w := worker(i + 1)
			for range 200 {
				leave, err := f.Join(w)
				if err != nil {
					t.Errorf("Join: %v", err)
					return
				}
				f.Update(w.Name, Ready)
				f.Acked(now(f))
				f.Pickable("large")
				leave()
			}
		})
	}
	wg.Wait()
	if v := f.View(); len(v.Workers) != 0 || len(f.Pickable("large")) != 0 {
		t.Fatalf("left behind: %+v", v)
	}
}

// TestTrial says what a fleet would, and does not take a view of all for each: of the largest fleet these were 5 GB.
func TestTrial(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	trial := NewTrial()
	worker := func(i int) Worker {
		return Worker{Name: fmt.Sprint("w", i), Endpoint: "large", Addr: fmt.Sprintf("10.0.%d.%d:1", i/256, i%256)}
	}
	for i := range MaxWorkers {
		if err := trial.Join(worker(i)); err != nil {
			t.Fatal(err)
		}
	}
	for w, want := range map[Worker]error{worker(0): ErrDuplicate, worker(MaxWorkers): ErrFull, {Name: "w"}: ErrInvalid} {
		if err := trial.Join(w); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 100<<20 {
		t.Errorf("%d bytes", after.TotalAlloc-before.TotalAlloc)
	}
}
