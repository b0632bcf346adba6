package roster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/scrape"
)

func worker(name, addr, events string) Worker {
	return Worker{Target: scrape.Target{Worker: fleet.Worker{Name: name, Endpoint: "e", Addr: addr, State: fleet.Starting}}, Events: events}
}

// TestEvents: those of a worker are followed from before it joins until it has left, and one whose events cannot be is told of.
func TestEvents(t *testing.T) {
	f := fleet.NewUnacknowledged()
	var log []string
	k := &Keeper{Fleet: f, Watch: func(context.Context, []scrape.Target) {},
		Open: func(l Worker) (string, func(), error) {
			if l.Events == "bad" {
				return "", nil, fmt.Errorf("no such thing")
			}
			log = append(log, fmt.Sprintf("open %s, %d joined", l.Worker.Name, len(f.View().Workers)))
			return "127.0.0.1:1", func() { log = append(log, fmt.Sprintf("close %s, %d joined", l.Worker.Name, len(f.View().Workers))) }, nil
		}}
	problems := k.Apply(t.Context(), []Worker{worker("a", "10.0.0.1:1", "x"), worker("b", "10.0.0.2:1", ""), worker("c", "10.0.0.3:1", "bad"), worker("d", "10.0.0.1:1", "x")})
	var told []string
	for _, w := range f.View().Workers {
		told = append(told, w.Name+" "+w.BlocksAddr)
	}
	if !slices.Equal(told, []string{"a 127.0.0.1:1", "b "}) || !slices.Equal(problems, []string{"c: no such thing", "address 10.0.0.1:1 of a: taken by a worker that is alive"}) {
		t.Errorf("%q, %q", told, problems)
	}
	k.Apply(t.Context(), nil)
	if want := []string{"open a, 0 joined", "open d, 2 joined", "close d, 2 joined", "close a, 1 joined"}; len(log) != 4 || !slices.Equal(log[:3], want[:3]) || !strings.HasPrefix(log[3], "close a") {
		t.Errorf("%q", log)
	}
}

// TestHeld: nobody looks after a worker that the list holds, before its state is that of the list; and it stays who it is.
func TestHeld(t *testing.T) {
	f := fleet.NewUnacknowledged()
	var log []string
	k := &Keeper{Fleet: f, Watch: func(_ context.Context, list []scrape.Target) {
		var names []string
		for _, t := range list {
			names = append(names, t.Worker.Name)
		}
		slices.Sort(names)
		states := ""
		for _, w := range f.View().Workers {
			states += " " + w.Name + "=" + w.State.String()
		}
		log = append(log, strings.Join(names, ",")+":"+states)
	}}
	held := func(w Worker, s fleet.State, why string) Worker {
		w.Held, w.Why = s, why
		return w
	}
	a, b := worker("a", "10.0.0.1:1", ""), worker("b", "10.0.0.2:1", "")
	k.Apply(t.Context(), []Worker{a, held(b, fleet.Starting, "not yet")})
	f.Update("a", fleet.Ready)
	joined := f.View().Workers[0].Joined
	for _, step := range []struct {
		list []Worker
		want string // states and reasons
	}{
		{[]Worker{a, held(b, fleet.Starting, "not yet")}, "a ready . b starting not yet."},
		{[]Worker{a, b}, "a ready . b starting ."},
		{[]Worker{held(a, fleet.Draining, "it ends"), b}, "a draining it ends. b starting ."},
		{[]Worker{held(a, fleet.Draining, "it ends soon"), b}, "a draining it ends soon. b starting ."},
		{[]Worker{b}, "b starting ."},
	} {
		k.Apply(t.Context(), step.list)
		var is []string
		for _, w := range f.View().Workers {
			is = append(is, fmt.Sprintf("%s %s %s.", w.Name, w.State, w.Status().Reason))
			if w.Name == "a" && !w.Joined.Equal(joined) {
				t.Error("it joined again")
			}
		}
		if got := strings.Join(is, " "); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
	want := []string{"a: a=starting b=starting", "a,b: a=ready b=starting", "b: a=ready b=starting", "b: a=draining b=starting"}
	if !slices.Equal(log, want) {
		t.Errorf("%q", log)
	}
}
