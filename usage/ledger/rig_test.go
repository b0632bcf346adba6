package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// noFeed delivers nothing: such tests hand items over themselves.
type noFeed struct{ status FeedStatus }

func (f *noFeed) Follow(ctx context.Context, _ map[string]string, _ chan<- Item) error {
	<-ctx.Done()
	return nil
}
func (f *noFeed) Status() FeedStatus { return f.status }

var start = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// opened opens a ledger for the length of a test.
func opened(t testing.TB, cfg Config) *Ledger {
	t.Helper()
	if cfg.Feed == nil {
		cfg.Feed = &noFeed{}
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return start.Add(24 * time.Hour) }
	}
	l, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // some tests close it themselves
	return l
}

// take counts records, one after the other in one lane, in one transaction.
func take(t testing.TB, l *Ledger, list ...*usagev1.Record) {
	t.Helper()
	items := make([]Item, len(list))
	for i, r := range list {
		items[i] = Item{Record: r, Lane: "lane", Place: fmt.Sprint(i), Where: "here"}
	}
	if err := l.commit(context.Background(), items); err != nil {
		t.Fatal(err)
	}
}

// sums asks for all of a group.
func sums(t testing.TB, l *Ledger, group ...string) []Row {
	t.Helper()
	rows, next, err := l.Sums(context.Background(), Query{Group: group, Limit: maxLimit})
	if err != nil || next != "" {
		t.Fatal(err, next)
	}
	return rows
}

// request makes the records of one: admitted and ended at these offsets from start, by the door and a worker.
func request(id string, at, took time.Duration) (admitted, used, served *usagev1.Record) {
	admitted = &usagev1.Record{
		Id: usage.AdmittedID(id), Kind: usage.KindAdmitted, Source: "door/a", Epoch: 1, Sequence: 1, Admission: id, Key: "k", Team: "t", Model: "m",
		Price: &usagev1.Price{Currency: "USD", Input: 1_000_000, Cached: 100_000, Output: 2_000_000}, AdmittedAt: timestamppb.New(start.Add(at)),
	}
	used = proto.CloneOf(admitted)
	used.Id, used.Kind, used.Sequence, used.Outcome, used.CountedFrom = usage.UsageID(id), usage.KindUsage, 2, usage.OutcomeComplete, usage.CountedEngine
	used.PromptTokens, used.CachedTokens, used.CompletionTokens = proto.Int64(100), proto.Int64(10), proto.Int64(20)
	used.EndedAt = timestamppb.New(start.Add(at + took))
	served = proto.CloneOf(used)
	served.Id, served.Kind, served.Source, served.Attempt, served.Price, served.AdmittedAt = usage.ServedID(id, 1, "main"), usage.KindServed, "worker/w", 1, nil, nil
	return admitted, used, served
}

// repairOf stands in for a usage record.
func repairOf(u *usagev1.Record, epoch uint64) *usagev1.Record {
	r := proto.CloneOf(u)
	r.Source, r.Epoch, r.Sequence, r.Anomalies = "repair/x", epoch, 1, []string{usage.Repaired}
	return r
}

// traffic makes the records of n requests of every sort, each once; repairs and their late originals among them.
func traffic(rnd *rand.Rand, n int) (list []*usagev1.Record) {
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	sequence := map[string]uint64{}
	write := func(source string, r *usagev1.Record) {
		sequence[source]++
		r.Source, r.Epoch, r.Sequence = source, 1, sequence[source]
		list = append(list, r)
	}
	for i := range n {
		a, u, s := request(fmt.Sprintf("a%06d", i), time.Duration(rnd.Int64N(int64(5*time.Hour))), time.Duration(rnd.Int64N(int64(time.Hour))))
		who := pick("t", "sales", "ops\"<b>&", "Zoë", "")
		var price *usagev1.Price
		if c := pick("USD", "EUR", ""); c != "" {
			price = &usagev1.Price{Currency: c, Input: rnd.Int64N(1e7), Cached: rnd.Int64N(1e6), Output: rnd.Int64N(1e8)}
		}
		labels := []map[string]string{nil, {"cost": "4711"}, {"cost": "4711", "a/b.c": `x"y'z`}}[rnd.IntN(3)]
		for _, r := range []*usagev1.Record{a, u, s} {
			r.Team, r.Key, r.Model = who, pick("k1", "k2"), pick("large", "small")
		}
		a.Price, a.Labels, u.Price, u.Labels = price, labels, price, labels
		u.Outcome = pick(usage.OutcomeComplete, usage.OutcomeComplete, usage.OutcomeClientCut, usage.OutcomeUpstreamCut, usage.OutcomeUpstreamError, usage.OutcomeNotServed)
		recount(rnd, u)
		recount(rnd, s)
		if s.Outcome = u.Outcome; rnd.IntN(4) == 0 {
			s.CompletionTokens = u.CompletionTokens
		}
		if rnd.IntN(20) == 0 {
			u.Anomalies, u.CountedFrom, u.PromptTokens, u.CachedTokens, u.CompletionTokens = []string{usage.Unmetered}, usage.CountedNone, nil, nil, nil
		}
		if rnd.IntN(10) == 0 {
			u.Price = nil // an older door; the admission has it
		}
		write("door/a", a)
		for epoch := uint64(5); rnd.IntN(6) == 0; epoch++ { // repaired, also twice, and also where the original comes
			r := repairOf(u, epoch)
			recount(rnd, r)
			r.EndedAt = timestamppb.New(r.EndedAt.AsTime().Add(time.Duration(rnd.IntN(3)) * time.Hour))
			list = append(list, r)
		}
		if rnd.IntN(15) > 0 {
			write("door/b", u)
		}
		if u.Outcome == usage.OutcomeNotServed || rnd.IntN(15) == 0 {
			continue
		}
		for attempt := uint32(1); ; attempt++ {
			r := proto.CloneOf(s)
			r.Id, r.Attempt = usage.ServedID(r.Admission, attempt, "main"), attempt
			last := rnd.IntN(5) > 0
			if !last {
				r.Outcome, r.CompletionTokens = usage.OutcomeUpstreamError, nil
			}
			if rnd.IntN(20) > 0 { // or its journal is lost
				write("worker/w", r)
			}
			if rnd.IntN(8) == 0 { // another leg of it
				leg := proto.CloneOf(r)
				leg.Id, leg.Outcome, leg.CompletionTokens = usage.ServedID(r.Admission, attempt, "prefill"), usage.OutcomeComplete, proto.Int64(1)
				write("worker/p", leg)
			}
			if last {
				break
			}
		}
	}
	return list
}

// recount gives a record other counts, each of which may be unknown.
func recount(rnd *rand.Rand, r *usagev1.Record) {
	for _, to := range []**int64{&r.PromptTokens, &r.CachedTokens, &r.CompletionTokens, &r.ReasoningTokens} {
		if *to = nil; rnd.IntN(12) > 0 {
			*to = proto.Int64(rnd.Int64N(5000))
		}
	}
}

// shuffled is the list in another order.
func shuffled(rnd *rand.Rand, list []*usagev1.Record) []*usagev1.Record {
	list = slices.Clone(list)
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
