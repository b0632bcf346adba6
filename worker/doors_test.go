package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// answers stand for DNS: a test says what there is, or what is wrong.
type answers struct {
	mu    sync.Mutex
	now   []string
	err   error
	asked int
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if host != "doors.example." {
		return nil, fmt.Errorf("asked for %s", host)
	}
	for _, s := range a.now {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, a.err
}

func (a *answers) set(err error, now ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.err = now, err
}

// again waits until what was set is in force.
func (a *answers) again(t *testing.T) {
	t.Helper()
	count := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.asked
	}
	from := count()
	eventually(t, "two more look-ups", func() bool { return count() >= from+2 })
}

// fakeDoors stand for doors: each has a stream for as long as the test lets it live.
type fakeDoors struct {
	mu   sync.Mutex
	live map[string]chan struct{}
	runs int
	over bool // the test is: a look-up that is on its way may find doors once more
}

func (s *fakeDoors) run(stopping context.Context, target string) {
	end := make(chan struct{})
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.live[target] = end
	s.runs++
	s.mu.Unlock()
	<-end
	<-stopping.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, target)
}

func (s *fakeDoors) cut(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.live[target])
}

func (s *fakeDoors) count() (live, runs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live), s.runs
}

func (s *fakeDoors) targets() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for t := range s.live {
		all = append(all, t)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func follow(t *testing.T) (*answers, *fakeDoors, func()) {
	var doorsKnown doors
	dns, doors := &answers{}, &fakeDoors{live: map[string]chan struct{}{}}
	n := &namedDoors{host: "doors.example.", port: "8090", resolver: dns, every: time.Millisecond, run: doors.run, doors: &doorsKnown, log: quiet(),
		leave: map[string]context.CancelFunc{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { n.follow(ctx); close(done) }()
	end := sync.OnceFunc(func() {
		stop()
		doors.mu.Lock()
		doors.over = true
		for _, d := range doors.live {
			select {
			case <-d:
			default:
				close(d)
			}
		}
		doors.mu.Unlock()
		<-done
	})
	t.Cleanup(end)
	return dns, doors, end
}

func TestDoorsOfANameComeAndGo(t *testing.T) {
	dns, doors, end := follow(t)
	is := func(what, want string) {
		t.Helper()
		eventually(t, what+": "+want, func() bool { return doors.targets() == want })
	}
	const both = "10.0.0.1:8090 10.0.0.2:8090"
	dns.set(nil, "10.0.0.2", "10.0.0.1", "10.0.0.1")
	is("found", both)
	for name, err := range map[string]error{"nobody answers": errors.New("i/o timeout"), "no such host": &net.DNSError{IsNotFound: true}, "no address": nil} {
		dns.set(err)
		dns.again(t)
		is(name, both)
	}
	// One that has vanished keeps the worker while its stream lives, and comes back without a second stream.
	dns.set(nil, "10.0.0.1")
	dns.again(t)
	is("vanished, and alive", both)
	dns.set(nil, "10.0.0.1", "10.0.0.2")
	dns.again(t)
	if live, runs := doors.count(); live != 2 || runs != 2 {
		t.Errorf("%d live, %d ever", live, runs)
	}
	dns.set(nil, "10.0.0.1", "10.0.0.3")
	is("another", both+" 10.0.0.3:8090")
	doors.cut("10.0.0.2:8090")
	is("left", "10.0.0.1:8090 10.0.0.3:8090")
	dns.set(nil, "10.0.0.1", "10.0.0.2", "10.0.0.3")
	is("joined anew", both+" 10.0.0.3:8090")
	// A host with both families has each door twice.
	dns.set(nil, "fd00::1", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	dns.again(t)
	if _, runs := doors.count(); runs != 4 {
		t.Errorf("%d ever", runs)
	}
	end()
	is("stopped", "")
}

func TestDoorsOfANameAreBounded(t *testing.T) {
	dns, doors, _ := follow(t)
	var many []string
	for i := range MostDoors + 50 {
		many = append(many, fmt.Sprintf("fd00::%x", i+1))
	}
	dns.set(nil, many...)
	eventually(t, "as many as may be", func() bool { live, _ := doors.count(); return live == MostDoors })
	dns.again(t)
	if live, _ := doors.count(); live != MostDoors {
		t.Errorf("%d doors", live)
	}
}

// TestJoinsEveryAddress: real doors on addresses of loopback, of which one dies and another takes its place.
func TestJoinsEveryAddress(t *testing.T) {
	dns := &answers{}
	s := newShim(t, server(t, nil), func(c *Config) {
		_, port, _ := net.SplitHostPort(c.Doors[0]) // of the first door
		c.Doors, c.resolver, c.lookEvery = []string{"dns:doors.example.:" + port}, dns, time.Millisecond
		dns.set(nil, "127.0.0.1")
	})
	_, port, _ := net.SplitHostPort(s.door.target)
	joined := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("joined to ", want), func() bool { return slices.Equal(s.Status().Doors, want) })
	}
	joined("door-1")
	second := newDoorAt(t, "door-2", "127.0.0.2:"+port)
	dns.set(nil, "127.0.0.1", "127.0.0.2")
	joined("door-1", "door-2")
	if st := s.Status(); len(st.Away) != 0 || !st.Settled {
		t.Errorf("%+v", st)
	}
	second.server.Stop()
	joined("door-1")
	newDoorAt(t, "door-3", "127.0.0.3:"+port)
	dns.set(nil, "127.0.0.1", "127.0.0.3")
	joined("door-1", "door-3")
	dns.set(errors.New("SERVFAIL"))
	dns.again(t)
	joined("door-1", "door-3")
}

// untold is a DNS that answers when it is told to, and then that it cannot.
type untold chan struct{}

func (u untold) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	select {
	case <-u:
		return nil, errors.New("SERVFAIL")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestNameIsWaitedFor: until it is known what a name stands for, or why not, a worker is not settled.
func TestNameIsWaitedFor(t *testing.T) {
	const name = "dns:doors.example.:8090"
	dns := make(untold)
	s := newShim(t, server(t, nil), func(c *Config) { c.Doors, c.resolver, c.lookEvery = append(c.Doors, name), dns, time.Millisecond })
	eventually(t, "joined", func() bool { return slices.Equal(s.Status().Doors, []string{"door-1"}) })
	if st := s.Status(); st.Settled || !slices.Equal(st.Away, []string{name}) {
		t.Errorf("before DNS answers: %+v", st)
	}
	close(dns)
	eventually(t, "settled", func() bool { return s.Status().Settled })
	if st := s.Status(); !slices.Equal(st.Away, []string{name + ": SERVFAIL"}) {
		t.Errorf("after that: %+v", st)
	}
}

func TestDoorHost(t *testing.T) {
	for target, want := range map[string]string{
		"door:8090": "door", "dns:doors.ns.svc.cluster.local.:8090": "doors.ns.svc.cluster.local.", "unix:/run/s": "", "[::1]:80": "::1", "door:http": "door",
	} {
		host, named, err := DoorHost(target)
		if err != nil || host != want || named != strings.HasPrefix(target, "dns:") {
			t.Errorf("%s: %q %v %v", target, host, named, err)
		}
	}
	for _, target := range []string{"", "door", "dns:door", "dns::80", "dns:door:0", "dns:door:http", "dns:///door:80", ":80"} {
		if host, _, err := DoorHost(target); err == nil {
			t.Errorf("%s: %q", target, host)
		}
	}
}

// TestSettled: a worker is settled when it has tried every door and is joined to one; what comes later changes nothing.
func TestSettled(t *testing.T) {
	var d doors
	step := func(what string, do func(), want bool) {
		t.Helper()
		do()
		if _, _, settled := d.now(); settled != want {
			t.Errorf("%s: settled %v", what, settled)
		}
	}
	d.know("a")
	forget := d.know("b")
	step("none", func() {}, false)
	step("one of two", func() { d.joined("a", "door-1") }, false)
	step("lost before", func() { d.left("a"); d.tried("a", "refused") }, false)
	step("nobody", func() { d.tried("b", "refused") }, false)
	step("one, the other in vain", func() { d.joined("a", "door-1") }, true)
	step("a new one", func() { d.know("c") }, true)
	step("all are gone", func() { d.left("a"); forget() }, true)
	d.tried("c", "a token is needed")
	if names, away, _ := d.now(); len(names) != 0 || !slices.Equal(away, []string{"a", "c: a token is needed"}) {
		t.Errorf("%q %q", names, away)
	}

	d = doors{}
	d.know("a")
	forget = d.know("b")
	step("one, and the other not tried yet", func() { d.joined("a", "door-1") }, false)
	step("the other is there no more", forget, true)
}

// TestDrainTakesWhatDoorsHaveSent: doors are told at once, and what comes until DrainDelay is over is served all the same.
func TestDrainTakesWhatDoorsHaveSent(t *testing.T) {
	s := newStates()
	s.tell(Life{State: workerv1.State_STATE_READY})
	s.leaveDoors()
	leave, at := s.enter()
	if leave == nil || at.state != workerv1.State_STATE_DRAINING {
		t.Fatalf("let in: %v, told %v", leave != nil, at.state)
	}
	idle := s.drain()
	if refused, at := s.enter(); refused != nil || reasonOf(at) != "draining" {
		t.Errorf("let in: %v, told %v", refused != nil, at.state)
	}
	leave()
	<-idle
	s = newStates()
	s.leaveDoors()
	if leave, at := s.enter(); leave != nil || reasonOf(at) != "draining" {
		t.Errorf("with no engine: let in: %v, told %v", leave != nil, at.state)
	}
}
