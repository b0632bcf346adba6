package join

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
)

// TestWhatAShimSaysIsKept, and what is not as the contract has it is made so.
func TestWhatAShimSaysIsKept(t *testing.T) {
	f := fleet.New()
	c := start(t, &Server{Fleet: f, Token: token, Beat: time.Minute})
	s, err := c.Join(as(t, "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(hello(func(h *workerv1.Hello) {
		h.Version, h.BlocksAddress, h.Ranks, h.Role = "v1.2.3", "[::ffff:10.0.0.1]:8001", 2, "decode"
	}))
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	w := f.View().Workers[0]
	if w.Version != "v1.2.3" || w.BlocksAddr != "10.0.0.1:8001" || w.Ranks != 2 || w.Role != fleet.RoleDecode || w.Joined.IsZero() || !w.Status().At.IsZero() {
		t.Errorf("joined as %+v", w)
	}
	many := []string{"queue:  9 wait\n", "kv-transfer: tcp", "kv-transfer: tcp", "Not A Cause: x", "", "seed", strings.Repeat("c", 33)}
	for i := range 50 {
		many = append(many, fmt.Sprintf("z%d: more", i))
	}
	s.Send(&workerv1.JoinRequest{Message: &workerv1.JoinRequest_Status{Status: &workerv1.Status{
		State: workerv1.State_STATE_READY, Reason: "a\x1bb", Running: 7, Degraded: many,
		Load:  &workerv1.Load{Running: 1, Waiting: 2, CacheUsedPermille: 5000, Preemptions: 4},
		Ranks: []*workerv1.Load{{Running: 1}, {Waiting: 2, CacheUsedPermille: 5000}}}}})
	until(t, f, "ready", func(v *fleet.View) bool { return v.Workers[0].State == fleet.Ready })
	got := w.Status() // of the view from before
	if got.Reason != "a b" || got.Running != 7 || time.Since(got.At) > time.Hour || *got.Load != (fleet.Load{Running: 1, Waiting: 2, CacheUsedPermille: 1000, Preemptions: 4}) {
		t.Errorf("said %+v, load %+v", got, got.Load)
	}
	if !slices.Equal(got.Ranks, []fleet.Load{{Running: 1}, {Waiting: 2, CacheUsedPermille: 1000}}) {
		t.Errorf("ranks said %+v", got.Ranks)
	}
	want := []string{"kv-transfer: tcp", "other", "other: " + strings.Repeat("c", 33), "other: Not A Cause: x", "queue: 9 wait", "seed"}
	for i := range mostDegraded - 7 {
		want = append(want, fmt.Sprintf("z%d: more", i))
	}
	if slices.Sort(want); !slices.Equal(got.Degraded, want) {
		t.Errorf("degraded %q\nwant %q", got.Degraded, want)
	}
}

func TestAHelloIsValid(t *testing.T) {
	for name, change := range map[string]func(*workerv1.Hello){
		"a version with blanks": func(h *workerv1.Hello) { h.Version = "v1 (dirty)" },
		"a long version":        func(h *workerv1.Hello) { h.Version = strings.Repeat("v", 254) },
		"an unknown role":       func(h *workerv1.Hello) { h.Role = "encode" },
		"too many ranks":        func(h *workerv1.Hello) { h.Ranks = 5000 },
		"blocks everywhere":     func(h *workerv1.Hello) { h.BlocksAddress = "0.0.0.0:80" },
		"blocks at a name":      func(h *workerv1.Hello) { h.BlocksAddress = "localhost:80" },
	} {
		s, err := start(t, &Server{Fleet: fleet.New(), Token: token, Beat: time.Minute}).Join(as(t, "Bearer "+token))
		if err != nil {
			t.Fatal(err)
		}
		s.Send(hello(change))
		if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBothKeysToTheDoor: a certificate is no substitute for a token that is asked for, nor the other way round.
func TestBothKeysToTheDoor(t *testing.T) {
	for name, c := range map[string]*Server{
		"a certificate is asked for":              {Certified: true},
		"a certificate and a token are asked for": {Certified: true, Token: token},
	} {
		c.Fleet, c.Beat = fleet.New(), time.Minute
		s, err := start(t, c).Join(as(t, "Bearer "+token))
		if err != nil {
			t.Fatal(err)
		}
		s.Send(hello(nil))
		if _, err := s.Recv(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSeedIsToldAndFollowed(t *testing.T) {
	seed, changed := uint64(5), make(chan struct{})
	first := make(chan struct{})
	asked := 0
	c := start(t, &Server{Fleet: fleet.New(), Token: token, Keys: keys(public), Beat: time.Minute, Seed: func() (uint64, <-chan struct{}) {
		if asked++; asked == 1 {
			return seed, first
		}
		return 6, changed
	}})
	s, err := c.Join(as(t, "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(hello(nil))
	if got := next(t, s).GetWelcome().GetHashSeed(); got != 5 {
		t.Errorf("seed %d", got)
	}
	close(first)
	if w := next(t, s).GetWelcome(); w.GetHashSeed() != 6 || len(w.GetKeys()) != 1 {
		t.Errorf("after a change: %v", w)
	}
}
