package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// loadKey may have loadPlaces requests at once: more than a load needs, few enough to be filled.
const (
	loadKey     = "load"
	loadPlaces  = 24
	loadClients = 6 // of each door
)

// shot is one request of a load and what came of it.
type shot struct {
	question
	began, ended time.Time
	verdict      verdict
	why          error
	admission    string // as the client was told; may be empty
}

// load is what goes on while something breaks: streams and short requests over both protocols, and some clients leave.
type load struct {
	quit context.CancelFunc
	all  sync.WaitGroup

	mu    sync.Mutex
	shots []shot
}

// startLoad runs clients at each of the doors until it is stopped.
func startLoad(ups []*up, seed uint64) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{quit: cancel}
	for d, u := range ups {
		for i := range loadClients {
			r := rand.New(rand.NewPCG(seed, uint64(d*loadClients+i)))
			l.all.Go(func() {
				for ctx.Err() == nil {
					s := shoot(u, r)
					l.mu.Lock()
					l.shots = append(l.shots, s)
					l.mu.Unlock()
					pause(ctx, time.Duration(10+r.IntN(40))*time.Millisecond)
				}
			})
		}
	}
	return l
}

// shoot sends one request. One client in five leaves, perhaps before the first byte.
func shoot(u *up, r *rand.Rand) shot {
	s := shot{question: questions()[r.IntN(len(questions()))], began: time.Now()}
	patience, leaves := callPatience, r.IntN(5) == 0
	if leaves {
		patience = time.Duration(1+r.IntN(150)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := protocols[r.IntN(2)].send(ctx, u.listen, post(u.key(loadKey), s.path, s.body))
	s.ended, s.admission = time.Now(), got.admission()
	s.verdict, s.why = s.judge(got, err)
	if s.verdict == cutOff && leaves && s.ended.Sub(s.began) >= patience {
		s.verdict = leftIt
	}
	if s.verdict == cutOff && errors.Is(err, context.DeadlineExceeded) {
		s.verdict, s.why = wrong, fmt.Errorf("no end within %v: %w", callPatience, err)
	}
	return s
}

// stop lets what runs come to its end.
func (l *load) stop() []shot {
	l.quit()
	l.all.Wait()
	return l.shots
}

// whole waits until n more requests, begun from now on, got their whole answer: the load goes on as it should.
func (l *load) whole(t testing.TB, n int) {
	t.Helper()
	from := time.Now()
	eventually(t, factPatience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		found := 0
		for _, s := range l.shots {
			if s.began.After(from) && s.verdict == whole200 {
				found++
			}
		}
		if found < n {
			return fmt.Errorf("%d whole answers; %s", found, count(l.shots))
		}
		return nil
	})
}

func count(shots []shot) string {
	n := map[verdict]int{}
	for _, s := range shots {
		n[s.verdict]++
	}
	text := fmt.Sprintf("%d requests:", len(shots))
	for _, v := range slices.Sorted(maps.Keys(n)) {
		text += fmt.Sprintf(" %d %s", n[v], v)
	}
	return text
}

// window is the time from a fault to the fact that all is well again.
type window struct{ from, to time.Time }

// judgeShots wants no wrong answer at any time, no error outside the window, and in it only those that the fault may cause.
func judgeShots(t testing.TB, shots []shot, w window, may []verdict) {
	t.Helper()
	inside, told := 0, 0
	for _, s := range shots {
		if s.verdict == whole200 || s.verdict == leftIt {
			continue
		}
		within := s.ended.After(w.from) && s.began.Before(w.to)
		if within && slices.Contains(may, s.verdict) {
			inside++
			continue
		}
		if told++; told <= 5 {
			t.Errorf("%s, from %v to %v after the fault, which was over after %v: %s %q %.100s: %v", s.verdict,
				s.began.Sub(w.from).Round(time.Millisecond), s.ended.Sub(w.from).Round(time.Millisecond), w.to.Sub(w.from).Round(time.Millisecond), s.path, s.admission, s.body, s.why)
		}
	}
	if told > 5 {
		t.Errorf("and %d more like these", told-5)
	}
	t.Logf("the fault took %v; %s; %d errors that it may cause", w.to.Sub(w.from).Round(10*time.Millisecond), count(shots), inside)
}
