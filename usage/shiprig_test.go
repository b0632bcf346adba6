package usage

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// request makes the records of one request, for one of four teams.
func request(i int) []*usagev1.Record {
	admission := fmt.Sprintf("a%07d", i)
	base := &usagev1.Record{
		Admission: admission, Key: "alice-laptop", Team: []string{"research", "sales", "a \"b\" \\ ü", ""}[i%4], Model: "sim-large",
		AdmittedAt: timestamppb.New(time.Unix(1_700_000_000, int64(i))),
	}
	admitted, used := proto.CloneOf(base), proto.CloneOf(base)
	admitted.Id, admitted.Kind = AdmittedID(admission), KindAdmitted
	used.Id, used.Kind, used.Outcome, used.PromptTokens = UsageID(admission), KindUsage, OutcomeComplete, proto.Int64(int64(i))
	used.EndedAt = timestamppb.New(time.Unix(1_700_000_100, int64(i)))
	return []*usagev1.Record{admitted, used}
}

// requestJournal opens a spool, and appends n requests.
func requestJournal(t testing.TB, dir string, n int, opts Options) *Spool {
	t.Helper()
	s, err := Open(dir, "door/main", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	appendRequests(t, s, 0, n)
	return s
}

func appendRequests(t testing.TB, s *Spool, from, n int) {
	t.Helper()
	for i := range n {
		for _, r := range request(from + i) {
			s.Append(r)
		}
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// testConfig is a forwarder's configuration with topics of the test's own.
func testConfig(t testing.TB, k *realKafka, dir string) ForwarderConfig {
	return ForwarderConfig{
		Dir: dir, Source: "door/main", Brokers: []string{k.addr}, Prefix: t.Name() + ".", Timeout: time.Minute,
		poll: 10 * time.Millisecond, tidy: 20 * time.Millisecond, wait: 20 * time.Millisecond, waitMax: 500 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// forward runs a forwarder until stop is called, or the test ends.
func forward(t testing.TB, cfg ForwarderConfig) (f *Forwarder, stop func()) {
	t.Helper()
	f, err := NewForwarder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return f, stop
}

func drain(t testing.TB, f *Forwarder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Drain(ctx); err != nil {
		t.Fatalf("%v; %+v", err, f.Status())
	}
}

// patience is for a fact, some of which come once a minute, on a machine that does much else.
const patience = 4 * time.Minute

// until waits for a fact.
func until(t testing.TB, what string, fact func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !fact() {
		if time.Now().After(deadline) {
			t.Fatal("in vain: " + what)
		}
		time.Sleep(5 * time.Millisecond) // polls a fact
	}
}

// assertShipped reads all topics and compares them with the journal: every record is there, with the content it has in
// the journal, as a CloudEvent. It returns how many are there more than once.
func assertShipped(t testing.TB, k *realKafka, dir, prefix string) (doubled int) {
	t.Helper()
	want := map[string]*usagev1.Record{}
	if _, err := Read(dir, func(r *usagev1.Record) error { want[r.Id] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	last := map[string]*usagev1.Record{} // by team and kind
	for _, kind := range shippedKinds {
		for _, m := range k.consume(t, prefix+kind) {
			r := want[headerOf(m, "ce_id")]
			if r == nil || r.Kind != kind {
				t.Fatalf("%s has %q, which is not in the journal", m.Topic, headerOf(m, "ce_id"))
			}
			assertEvent(t, m, r)
			lane := kind + "/" + r.Team
			if found[r.Id] {
				doubled++
				continue
			}
			found[r.Id] = true
			if l := last[lane]; l != nil && (l.Epoch > r.Epoch || l.Epoch == r.Epoch && l.Sequence > r.Sequence) {
				t.Fatalf("%s comes after %s", r.Id, l.Id)
			}
			last[lane] = r
		}
	}
	if len(found) != len(want) {
		t.Fatalf("%d of %d records have been shipped", len(found), len(want))
	}
	return doubled
}

func headerOf(m kafka.Message, key string) string {
	for _, h := range m.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func assertEvent(t testing.TB, m kafka.Message, r *usagev1.Record) {
	t.Helper()
	at := r.EndedAt
	if at == nil {
		at = r.AdmittedAt
	}
	want := map[string]string{
		"content-type": "application/json", "ce_specversion": "1.0", "ce_id": r.Id, "ce_source": r.Source,
		"ce_type": "spokegate." + r.Kind + ".v1", "ce_time": at.AsTime().Format(time.RFC3339Nano), "ce_subject": r.Admission,
		"ce_dataschema": DataSchema, "ce_sequence": fmt.Sprintf("%020d", r.Sequence),
	}
	if r.Team != "" {
		want["ce_partitionkey"] = r.Team
	}
	got := map[string]string{}
	for _, h := range m.Headers {
		got[h.Key] = string(h.Value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(m.Headers) != len(want) || string(m.Key) != r.Team {
		t.Fatalf("headers %v, key %q, want %v", got, m.Key, want)
	}
	if value := AppendJSON(nil, r); !bytes.Equal(m.Value, value) {
		t.Fatalf("value %s, want %s", m.Value, value)
	}
}
