package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Trace is what is replayed: requests in the order in which they come.
type Trace struct {
	Name      string
	BlockSize int // tokens
	Requests  []Request
	Blocks    int // how many different ones
}

// Seconds from the first request to the last one.
func (t *Trace) Seconds() float64 {
	return t.Requests[len(t.Requests)-1].At - t.Requests[0].At
}

// Request is one of them.
type Request struct {
	At      float64 // seconds since the beginning
	Session int
	In, Out int     // tokens
	Blocks  []int32 // of the prompt, the last one perhaps not whole; equal numbers are equal contents, and so is all before them
}

// Load is how densely requests come.
type Load struct {
	// Rate is how many requests come a second, on average. 0: as the trace says.
	Rate float64
	// Pause is the longest that a session waits between two requests, in seconds: whoever comes back later finds every cache
	// cold. 0: as long as the trace says.
	Pause float64
	// Sessions at most, or single requests; 0: all.
	Sessions int
	Seed     uint64
}

// ofSessions lets the sessions begin at random times, so that requests come at the rate asked for all the time: some run when
// the replay begins, and some when it ends. What lies outside is not replayed.
func ofSessions(name string, sessions []session, load Load) (*Trace, error) {
	if load.Sessions > 0 && load.Sessions < len(sessions) {
		sessions = sessions[:load.Sessions]
	}
	t := &Trace{Name: name, BlockSize: sessions[0].BlockSize}
	for i := range sessions {
		sessions[i].shorten(load.Pause)
	}
	span, err := spanOf(sessions, load.Rate)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(load.Seed, 1))
	for i, s := range sessions {
		t.session(i, s, r.Float64()*(span+s.length())-s.length())
	}
	t.Requests = slices.DeleteFunc(t.Requests, func(q Request) bool { return q.At < 0 || q.At > span })
	return t, t.ready()
}

// spanOf is how long to replay so that requests come at the rate, in seconds: each session begins at any time from its length
// before the beginning up to the end, so over a span s a session of length l has s/(s+l) of its requests in it.
func spanOf(sessions []session, rate float64) (float64, error) {
	at := func(span float64) (rate float64) {
		for _, s := range sessions {
			rate += float64(len(s.Requests)) / (span + s.length())
		}
		return rate
	}
	var total, length float64
	for _, s := range sessions {
		total += float64(len(s.Requests))
		length += s.length() / float64(len(sessions))
	}
	if rate == 0 {
		return length, nil
	}
	// Shorter than a tenth of the mean session, it would be no more than a glimpse.
	if most := at(length / 10); rate > most {
		return 0, fmt.Errorf("%d sessions give at most %.3g requests a second: shorten their pauses, or lower the rate", len(sessions), most)
	}
	low, high := 0.0, total/rate
	for range 60 {
		if mid := (low + high) / 2; at(mid) > rate {
			low = mid
		} else {
			high = mid
		}
	}
	return high, nil
}

// length of the session in seconds, no less than one.
func (s *session) length() float64 { return max(s.Requests[len(s.Requests)-1].T, 1) }

// shorten makes pauses no longer than that.
func (s *session) shorten(pause float64) {
	var cut, before float64
	for i := range s.Requests {
		at := s.Requests[i].T
		if gap := at - before; pause > 0 && i > 0 && gap > pause {
			cut += gap - pause
		}
		before = at
		s.Requests[i].T -= cut
	}
}

// session adds a session's requests. Its blocks are numbered anew: those in the file are its own.
func (t *Trace) session(number int, s session, start float64) {
	numbers := map[int32]int32{}
	turns := make([][]int32, len(s.Requests))
	for i, q := range s.Requests {
		var blocks []int32
		if q.Base >= 0 {
			blocks = slices.Clone(turns[i-q.Base][:q.Keep])
		}
		turns[i] = t.number(blocks, q.New, numbers)
		t.Requests = append(t.Requests, Request{At: start + q.T, Session: number, In: q.In, Out: q.Out, Blocks: turns[i]})
	}
}

// number appends blocks of a file as the trace counts them.
func (t *Trace) number(to, blocks []int32, numbers map[int32]int32) []int32 {
	for _, b := range blocks {
		n, known := numbers[b]
		if !known {
			n = int32(t.Blocks)
			numbers[b] = n
			t.Blocks++
		}
		to = append(to, n)
	}
	return to
}

// ofCalls takes single requests: each its own session.
func ofCalls(name string, calls []call, load Load) (*Trace, error) {
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	if load.Sessions > 0 && load.Sessions < len(calls) {
		calls = calls[:load.Sessions]
	}
	t := &Trace{Name: name, BlockSize: 512}
	first := calls[0].Timestamp
	stretch := 1e-3
	if span := calls[len(calls)-1].Timestamp - first; load.Rate > 0 && span > 0 {
		stretch = float64(len(calls)) / load.Rate / span
	}
	numbers := map[int32]int32{}
	for i, c := range calls {
		t.Requests = append(t.Requests, Request{
			At: (c.Timestamp - first) * stretch, Session: i, In: c.In, Out: c.Out, Blocks: t.number(nil, c.Hashes, numbers),
		})
	}
	return t, t.ready()
}

// ready puts the requests in order.
func (t *Trace) ready() error {
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	if len(t.Requests) < 2 {
		return errors.New("fewer than two requests")
	}
	return nil
}
