package limits_test

import (
	"encoding/binary"
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
func TestRedisDecidesAsDecide(t *testing.T) {
	server := limitstest.StartRedis(t)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRedis(t, limits.RedisConfig{URL: server.URL(), LeaseTTL: time.Minute, Timeout: patient})
			r.GoByNow()
			h := &history{t: t, rand: rand.New(rand.NewPCG(seed, 5)), now: start,
				redis: waiting{r}, memory: limits.NewMemory(limits.MemoryConfig{LeaseTTL: time.Minute})}
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
	redis, memory     limits.Limiter
	holds             []limits.Hold
	story             []string
	admitted, refused int
}

func (h *history) step(i int) {
	h.t.Helper()
	h.now = h.now.Add(pick(h.rand, []time.Duration{0, 0, time.Microsecond, 900 * time.Microsecond, 7 * time.Millisecond,
		333333 * time.Microsecond, time.Second, 11 * time.Second, 40 * time.Minute}))
	switch n := h.rand.IntN(10); {
	case n < 2 && len(h.holds) > 0:
		hold := pick(h.rand, h.holds)
		h.same(fmt.Sprint("release ", hold.Admission), h.redis.Release(h.t.Context(), h.now, hold, limits.Used{}), h.memory.Release(h.t.Context(), h.now, hold, limits.Used{}))
	case n < 3 && len(h.holds) > 0:
		hold := pick(h.rand, h.holds)
		h.same(fmt.Sprint("renew ", hold.Admission), renewed(h.t, h.redis, h.now, hold), renewed(h.t, h.memory, h.now, hold))
	default:
		h.ask(fmt.Sprint("a", max(0, i-h.rand.IntN(2))))
	}
}

func (h *history) ask(admission string) {
	h.t.Helper()
	ask := limits.Ask{Admission: admission, Limits: anyLimits(h.rand)}
	a, err := h.redis.Acquire(h.t.Context(), h.now, ask)
	if err != nil {
		h.t.Fatal(err)
	}
	b, err := h.memory.Acquire(h.t.Context(), h.now, ask)
	if err != nil {
		h.t.Fatal(err)
	}
	h.same(fmt.Sprintf("%s by %+v", admission, ask.Limits), a, b)
	if a.Admitted {
		h.admitted++
		// An admission that came back after all had forgotten it has another hold; the old one is nobody's.
		h.holds = slices.DeleteFunc(h.holds, func(old limits.Hold) bool { return old.Admission == admission })
		h.holds = append(h.holds[max(0, len(h.holds)-20):], a.Hold)
	} else {
		h.refused++
	}
}

func (h *history) same(what string, redis, memory any) {
	h.t.Helper()
	h.story = append(h.story, fmt.Sprintf("%s %s: %v", h.now.Sub(start), what, redis))
	if d := cmp.Diff(memory, redis, cmpopts.IgnoreUnexported(limits.Hold{}), cmpopts.EquateErrors()); d != "" {
		h.t.Fatalf("memory (-) and redis (+) differ:\n%s\n%s", d, strings.Join(h.story[max(0, len(h.story)-12):], "\n"))
	}
}

// anyLimits are some limits with values as a policy may have them, and some as it may not.
func anyLimits(r *rand.Rand) []policy.Limit {
	var ls []policy.Limit
	for level, id := range []string{"platform", "team/8:research/0:", "key\x00\xff", "d"} {
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
		ls = append(ls, l)
	}
	return ls
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func FuzzParseLimits(f *testing.F) {
	f.Add(limits.AppendLimits(nil, []policy.Limit{{Level: policy.TeamLevel, Owner: "research", Model: "m", ID: "team/8:research/1:m",
		RequestsPerSecond: 0.3, Burst: 7, Concurrency: 1 << 40}, {}}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		ls, err := limits.ParseLimits(b)
		if err != nil {
			return
		}
		again, err := limits.ParseLimits(limits.AppendLimits(nil, ls))
		if d := cmp.Diff(ls, again, cmpopts.EquateNaNs()); err != nil || d != "" {
			t.Errorf("%v, %s", err, d)
		}
	})
}

// Whatever Redis answers: an error comes with the zero Decision, a refusal with what refuses, a yes with all that it holds.
func FuzzReadDecision(f *testing.F) {
	p := policy.Limit{ID: "key", Concurrency: 1}
	answer := func(item byte, numbers ...float64) string {
		b := []byte{item}
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(n))
		}
		return string(b)
	}
	f.Add("A" + answer(0, 0, 0, 0, 0))
	f.Add("A" + answer(1, 1, 0, 1e9, 0))
	f.Add("R" + answer(1, 1, 0, 1e9, 1e9))
	f.Add("R" + answer(0, 0, 0, 0, 0)) // by nothing
	f.Add("R" + answer(2, 1, 0, math.NaN(), -1))
	f.Add("S" + answer(1, 1, 0, 1e9, 0) + string(limits.AppendLimits(nil, []policy.Limit{p})))
	f.Add("X")
	f.Fuzz(func(t *testing.T, reply string) {
		d, err := limits.ReadDecision(reply, "a", []policy.Limit{{ID: "team", RequestsPerSecond: 1, Burst: 2}, p})
		switch b := d.Binding(); {
		case err != nil:
			if d.Admitted || b != nil || d.Hold.Admission != "" {
				t.Errorf("%v beside %v", d, err)
			}
		case b == nil && !d.Admitted:
			t.Error("refused by nothing")
		case b != nil && (b.Max < 0 || b.Remaining < 0 || b.Reset < 0 || b.RetryAfter < 0 || b.Kind == 0):
			t.Errorf("%+v", b)
		case d.Admitted != (d.Hold.Admission == "a"):
			t.Errorf("%+v", d)
		case d.Admitted && reply[0] == 'A' && !slices.Equal(d.Hold.Leases, []string{"key"}):
			t.Errorf("holds %v", d.Hold.Leases)
		}
	})
}
