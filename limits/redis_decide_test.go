package limits_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/policy"
)

// TestRedisDecidesAsDecide lives through random histories, with limits that change from ask to ask, in Redis and in memory,
// whose judgement is Decide. Every number of every answer must be the same.
func TestRedisDecidesAsDecide(t *testing.T) { decidesAsDecide(t, limitstest.StartRedis(t).URL()) }

func decidesAsDecide(t *testing.T, url string) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			elsewhere := &limits.Elsewhere{} // what other spokes have counted, in half of the histories
			r := newRedis(t, limits.RedisConfig{URL: url, LeaseTTL: time.Minute, Timeout: patient, Elsewhere: elsewhere})
			r.GoByNow()
			h := &history{t: t, rand: rand.New(rand.NewPCG(seed, 5)), now: start, redis: waiting{r},
				memory: limits.NewMemory(limits.MemoryConfig{LeaseTTL: time.Minute, Elsewhere: elsewhere})}
			if seed%2 == 1 {
				h.elsewhere = elsewhere
			}
			for i := range 1500 {
				h.step(i)
			}
			if h.refused < 100 || h.admitted < 100 {
				t.Errorf("%d admitted, %d refused: too few to show anything", h.admitted, h.refused)
			}
		})
	}
}

type history struct {
	t                 *testing.T
	rand              *rand.Rand
	now               time.Time
	redis, memory     store
	holds             []limits.Hold
	story             []string
	elsewhere         *limits.Elsewhere
	admitted, refused int
}

type store interface {
	limits.Limiter
	limits.Rebuilder
}

func (h *history) step(i int) {
	h.t.Helper()
	h.now = h.now.Add(pick(h.rand, []time.Duration{0, 0, 0, time.Microsecond, 900 * time.Microsecond, 7 * time.Millisecond,
		333333 * time.Microsecond, time.Second, 11 * time.Second, 40 * time.Minute}))
	if h.rand.IntN(100) == 0 {
		h.now = h.now.Add(pick(h.rand, []time.Duration{9 * time.Hour, 8 * 24 * time.Hour, 400 * 24 * time.Hour}))
	}
	switch n := h.rand.IntN(20); {
	case n < 5 && len(h.holds) > 0:
		hold, used := pick(h.rand, h.holds), limits.Used{Tokens: pick(h.rand, []int64{-1, 0, 3, 7, 400, 1 << 60}), Unserved: h.rand.IntN(3) == 0}
		h.same(fmt.Sprint("release ", hold.Admission, used), h.redis.Release(h.t.Context(), h.now, hold, used), h.memory.Release(h.t.Context(), h.now, hold, used))
	case n < 7 && len(h.holds) > 0:
		hold := pick(h.rand, h.holds)
		h.same(fmt.Sprint("renew ", hold.Admission), renewed(h.t, h.redis, h.now, hold), renewed(h.t, h.memory, h.now, hold))
	case n < 8 && h.elsewhere != nil && h.rand.IntN(2) == 0:
		ts := h.totals()
		h.elsewhere.Take(pick(h.rand, []string{"hub", "hub", "another"}), h.now, ts)
		h.same(fmt.Sprint("elsewhere ", ts), nil, nil)
	case n < 8:
		h.raise()
	case n < 10:
		h.look()
	default:
		h.ask(fmt.Sprint("a", max(0, i-h.rand.IntN(2))))
	}
}

func (h *history) ask(admission string) {
	h.t.Helper()
	ask := limits.Ask{Admission: admission, Limits: anyLimits(h.rand), Tokens: pick(h.rand, []int64{0, 1, 5, 5, 40, 300, 1 << 50, 1 << 55})}
	a, err := h.redis.Acquire(h.t.Context(), h.now, ask)
	if err != nil {
		h.t.Fatal(err)
	}
	b, err := h.memory.Acquire(h.t.Context(), h.now, ask)
	if err != nil {
		h.t.Fatal(err)
	}
	h.same(fmt.Sprintf("%s of %d by %+v", admission, ask.Tokens, ask.Limits), a, b)
	if a.Admitted {
		h.admitted++
		// An admission that came back after all had forgotten it has another hold; the old one is nobody's.
		h.holds = slices.DeleteFunc(h.holds, func(old limits.Hold) bool { return old.Admission == admission })
		h.holds = append(h.holds[max(0, len(h.holds)-20):], a.Hold)
	} else {
		h.refused++
	}
}

func (h *history) raise() {
	h.t.Helper()
	ts := h.totals()
	h.same(fmt.Sprint("raise ", ts), h.redis.Raise(h.t.Context(), h.now, ts), h.memory.Raise(h.t.Context(), h.now, ts))
}

// totals are some, of now and of the past.
func (h *history) totals() (ts []limits.Total) {
	for range h.rand.IntN(4) {
		total := limits.Total{ID: pick(h.rand, limitIDs), Kind: limits.RequestsPerDay + limits.Kind(h.rand.IntN(4)), Used: pick(h.rand, []int64{-1, 0, 2, 30, 1 << 60})}
		span := limits.Day
		if total.Kind >= limits.RequestsPerMonth {
			span = limits.Month
		}
		begin, _ := span.Bounds(h.now.Add(pick(h.rand, []time.Duration{0, 0, 0, -30 * 24 * time.Hour})))
		total.Start = time.Unix(begin, 0).UTC()
		ts = append(ts, total)
	}
	return ts
}

func (h *history) look() {
	h.t.Helper()
	ls := anyLimits(h.rand)
	a, errA := h.redis.Look(h.t.Context(), h.now, ls)
	b, errB := h.memory.Look(h.t.Context(), h.now, ls)
	h.same(fmt.Sprint("look ", errA), a, b)
	ta, errTA := h.redis.Totals(h.t.Context(), h.now, limitIDs)
	tb, errTB := h.memory.Totals(h.t.Context(), h.now, limitIDs)
	h.same("totals", ta, tb)
	if err := errors.Join(errA, errB, errTA, errTB); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) same(what string, redis, memory any) {
	h.t.Helper()
	h.story = append(h.story, fmt.Sprintf("%s %s: %v", h.now.Sub(start), what, redis))
	if d := cmp.Diff(memory, redis, cmpopts.IgnoreUnexported(limits.Hold{}), cmpopts.EquateErrors()); d != "" {
		h.t.Fatalf("memory (-) and redis (+) differ:\n%s\n%s", d, strings.Join(h.story[max(0, len(h.story)-12):], "\n"))
	}
}

var limitIDs = []string{"platform", "team/8:research/0:", "key\x00\xff", "d"}

// anyLimits are some limits with values as a policy may have them, and some as it may not.
func anyLimits(r *rand.Rand) []policy.Limit {
	var ls []policy.Limit
	for level, id := range limitIDs {
		if r.IntN(3) == 0 {
			continue
		}
		l := policy.Limit{Level: policy.Level(level), Owner: "o" + id, ID: id}
		if r.IntN(3) > 0 {
			l.RequestsPerSecond = pick(r, []float64{3, 3, 3, 1.0 / 7, 0.5, 1, 10, 1000, 1e6, 1e-5, 7.3})
			l.Burst = pick(r, []int{1, 2, 3, 3, 3, 10, 1000})
		}
		if r.IntN(12) == 0 {
			l.RequestsPerSecond = pick(r, []float64{1e-300, 1e-6, 1e12, math.Inf(1), 1e-4})
			l.Burst = pick(r, []int{0, -4, 1, 1_000_000, 1 << 40})
		}
		if r.IntN(2) == 0 {
			l.Concurrency = 1 + r.IntN(6)
		}
		for _, quota := range []*int64{&l.TokensPerMinute, &l.RequestsPerDay, &l.TokensPerDay, &l.RequestsPerMonth, &l.TokensPerMonth} {
			if r.IntN(4) == 0 {
				*quota = pick(r, []int64{1, 10, 50, 100, 1000, 1 << 51})
			}
		}
		ls = append(ls, l)
	}
	return ls
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func FuzzParseLimits(f *testing.F) {
	f.Add(string(limits.AppendLimits(nil, []policy.Limit{{Level: policy.TeamLevel, Owner: "research", Model: "m", ID: "team/8:research/1:m",
		RequestsPerSecond: 0.3, Burst: 7, Concurrency: 1 << 40, TokensPerMinute: 1, RequestsPerDay: 2, TokensPerDay: 3,
		RequestsPerMonth: 4, TokensPerMonth: 5}, {}})))
	f.Add("\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, s string) {
		ls, rest, err := limits.ParseLimits(s)
		if err != nil {
			return
		}
		again, restAgain, err := limits.ParseLimits(string(limits.AppendLimits(nil, ls)) + rest)
		if d := cmp.Diff(ls, again, cmpopts.EquateNaNs()); err != nil || d != "" || rest != restAgain {
			t.Errorf("%v, %s", err, d)
		}
	})
}

// Whatever Redis answers: an error comes with the zero Decision, a refusal with what refuses, a yes with all that it holds.
func FuzzReadDecision(f *testing.F) {
	ask := limits.Ask{Admission: "a", Tokens: 5, Limits: []policy.Limit{{ID: "team", RequestsPerSecond: 1, Burst: 2}, {ID: "key", Concurrency: 1, TokensPerDay: 10}}}
	memo := string(limits.AppendLimits(nil, ask.Limits))
	record := "A" + doubles(2e15, 7, 1e15, 5) + memo
	empty, full := doubles(make([]float64, 30)...), doubles(append(make([]float64, 17), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...)
	for _, s := range []string{record + empty, record + full, "S" + record + empty, "S" + record, "R" + doubles(1e15) + full, "R" + doubles(1e15) + empty,
		"R" + doubles(1e15) + doubles(append([]float64{math.NaN()}, make([]float64, 29)...)...), "X", "S", "A"} {
		f.Add(s)
	}
	f.Add("S" + record + doubles(make([]float64, 8)...) + empty)
	f.Add("S" + record + doubles(-1, 1, 1, 1, 1, 1, 1, 1) + empty)
	f.Fuzz(func(t *testing.T, reply string) {
		d, err := limits.ReadDecision(reply, ask, nil, len(memo))
		switch b := d.Binding(); {
		case err != nil:
			if d.Admitted || b != nil || d.Hold.Admission != "" {
				t.Errorf("%v beside %v", d, err)
			}
		case d.Admitted != (d.Hold.Admission == "a"):
			t.Errorf("%+v", d)
		case !d.Admitted && (b == nil || !b.Refuses):
			t.Error("refused by nothing")
		case b != nil && (b.Max < 0 || b.Used < 0 || b.Remaining < 0 || b.Reset < 0 || b.Kind == 0):
			t.Errorf("%+v", b)
		case d.Admitted && reply[0] == 'A' && (!slices.Equal(d.Hold.Leases, []string{"key"}) || !slices.Equal(d.Hold.Quotas, []string{"key"})):
			t.Errorf("holds %+v", d.Hold)
		}
	})
}

func doubles(fs ...float64) string {
	var b []byte
	for _, f := range fs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return string(b)
}
