package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/usage/balance"
)

// TestReconcile soaks an installation in mixed traffic, a third of which leaves, while the door, a worker, the broker and Envoy
// are killed in turn, and then proves the records: from the spools and from the real Kafka, as they are, repaired, and tampered
// with. Each is killed once, or as often as there is time in SPOKEGATE_SOAK.
func TestReconcile(t *testing.T) {
	t.Parallel()
	var last time.Duration
	if text := os.Getenv("SPOKEGATE_SOAK"); text != "" {
		var err error
		if last, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	k := newBroker(t)
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	policy := siegePolicy()
	policy.setHead(strings.Replace(policy.head, "{name: sim-small, endpoint: sim}", `{name: sim-small, endpoint: sim, price: {currency: USD, input: "1.25", cached: "0.125", output: "10"}}`, 1))
	policy.set("soak", "team: t1, limits: [{concurrency: 200, tokens_per_day: 1000000000000}]")
	s := besiege(t, "reconcile", func(o *upOptions) { o.losing, o.policy = true, policy }, nil,
		"SPOKEGATE_KAFKA="+k.addr, "SPOKEGATE_REDIS="+limitstest.StartRedis(t).URL())
	u := s.ups[0]
	began := time.Now()
	l := startSoak(u, 7)
	defer l.stop()
	kills := soakKills(t, s, k, l, began.Add(last))
	tallies := l.stop()
	t.Logf("%v: %s; killed: %v", time.Since(began).Round(time.Second), soaked(tallies), kills)
	s.free(t)
	eventually(t, kafkaPatience, func() error {
		if page := u.page(t, "/readyz"); !strings.Contains(page, "records shipped, 0 bytes wait") {
			return fmt.Errorf("not all is shipped: %s\n%s", page, k.running.report())
		}
		return nil
	})
	if err := u.end(); err != nil { // in peace, so that engines say what they have counted
		t.Error(err)
	}
	proves(t, k, u.dir, tallies)
	tamperedTopic(t, k, u.dir)
}

// soakKills kills each in turn, at least once, until the time is over.
func soakKills(t *testing.T, s *siege, k *broker, l *soak, until time.Time) map[string]int {
	some := 25 // answers between two kills
	if time.Until(until) > time.Minute {
		some = 100
	}
	kills := map[string]int{}
	l.goesOn(t, some)
	s.lost = true
	killDoor(t, s)
	for kills["door"] = 1; kills["envoy"] == 0 || time.Now().Before(until); {
		if kills["envoy"] > 0 {
			signals("door", syscall.SIGKILL)(t, s)
			kills["door"]++
		}
		l.goesOn(t, some)
		signals("worker", syscall.SIGKILL)(t, s)
		kills["worker"]++
		l.goesOn(t, some)
		k.kill()
		kills["broker"]++
		l.goesOn(t, some)
		if err := k.start(); err != nil {
			t.Fatal(err)
		}
		signals("envoy", syscall.SIGKILL)(t, s)
		kills["envoy"]++
		l.goesOn(t, some)
	}
	return kills
}

// proves wants that nothing but what kills can do is missing, that repairs mend it, and that then all agree: the spools, Kafka,
// the engines and the clients.
func proves(t *testing.T, k *broker, dir string, tallies []tally) {
	t.Helper()
	ops := t.TempDir() // of whom reconciles: the door's folder is not theirs to write to
	before := reconciles(t, 1, 0, "-settle", "0s", "-dir", dir)
	for _, p := range before.Problems {
		if p.Kind != balance.MissingUsage && p.Kind != balance.MissingAdmitted && p.Kind != balance.Uncounted {
			t.Errorf("kills cannot do this: %v", p)
		}
	}
	t.Logf("after the kills: %v", before.Counts)
	repaired := reconciles(t, 0, 0, "-settle", "0s", "-dir", ops, "-kafka", k.addr, "-repair", "-as", "ops")
	t.Logf("repaired: %v", repaired.Counts)
	a := reconciles(t, 0, 0, "-settle", "0s", "-dir", ops, "-kafka", k.addr, "-as", "ops")
	b := reconciles(t, 0, 0, "-settle", "0s", "-dir", dir+","+ops)
	a.Total.Doubled, b.Total.Doubled = 0, 0
	if a.Total != b.Total || a.Total.Open != 0 || a.Total.Admitted != a.Total.Usage || a.Total.Admitted < 100 {
		t.Errorf("from Kafka %+v, from the spools %+v", a.Total, b.Total)
	}
	verdicts := map[balance.Verdict]int{}
	for _, e := range a.Engines {
		verdicts[e.Verdict]++
	}
	told, err := k.agrees(tallies)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d admissions, %d usage records, %d served; %d cut, %d tokens of them not delivered; %d answers agree with what their clients were told; engines: %v",
		a.Total.Admitted, a.Total.Usage, a.Total.Served, a.Total.Cut, a.Total.CutTokens, told, verdicts)
	if verdicts[balance.Agrees] == 0 || told == 0 {
		t.Errorf("nothing was compared: engines %v, clients %d", verdicts, told)
	}
	balancePublished(t, k, a)
}

// balancePublished wants the balance in its topic.
func balancePublished(t *testing.T, k *broker, want balance.Report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkaPatience)
	defer cancel()
	messages, err := k.messages(ctx, "spokegate.balance")
	if err != nil {
		t.Fatal(err)
	}
	var last *usagev1.Record
	for _, m := range messages {
		if r, err := usage.ParseJSON(m.Value); err != nil {
			t.Fatal(err)
		} else if r.Balance != nil && r.Balance.Of == "" && (last == nil || r.EndedAt.AsTime().After(last.EndedAt.AsTime())) {
			last = r
		}
	}
	if last == nil || !last.Balance.Balanced || last.Balance.Usage != want.Total.Usage || !last.EndedAt.AsTime().Equal(want.At) {
		t.Errorf("want %+v at %v, the topic has %v", want.Total, want.At, last)
	}
}

// reconciles runs the command until it ends with one of two exit codes: the last records are on their way to the disk and to Kafka.
func reconciles(t *testing.T, code, or int, args ...string) (report balance.Report) {
	t.Helper()
	eventually(t, kafkaPatience, func() error {
		out, errs, got := spokegate(t, append([]string{"usage", "reconcile", "-json"}, args...)...)
		report = balance.Report{}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return fmt.Errorf("%w: %s%s", err, out, errs)
		}
		if report.Balanced != (got == 0) || got != code && got != or {
			return fmt.Errorf("exit code %d, %v, %s", got, report.Problems, errs)
		}
		return nil
	})
	return report
}

// tamperedTopic writes one record again, with other words.
func tamperedTopic(t *testing.T, k *broker, dir string) {
	t.Helper()
	var victim *usagev1.Record
	_, err := usage.Read(filepath.Join(dir, "spool"), func(r *usagev1.Record) error {
		if r.Kind == usage.KindUsage && r.Outcome == usage.OutcomeComplete && r.GetCompletionTokens() > 0 {
			victim = r
		}
		return nil
	})
	if err != nil || victim == nil {
		t.Fatal(victim, err)
	}
	less := int64(0)
	victim.CompletionTokens = &less
	w := &kafka.Writer{Addr: kafka.TCP(k.addr), Topic: "spokegate.usage", Balancer: &kafka.Murmur2Balancer{Consistent: true}, BatchTimeout: time.Millisecond}
	defer w.Close()
	header := func(key, value string) kafka.Header { return kafka.Header{Key: key, Value: []byte(value)} }
	err = w.WriteMessages(context.Background(), kafka.Message{
		Key: []byte(victim.Team), Value: usage.AppendJSON(nil, victim),
		Headers: []kafka.Header{header("ce_id", victim.Id), header("ce_source", victim.Source), header("ce_sequence", fmt.Sprint(victim.Sequence))},
	}, kafka.Message{Key: []byte("x"), Value: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	r := reconciles(t, 1, 1, "-settle", "0s", "-kafka", k.addr, "-publish=false")
	var told []string
	for _, p := range r.Problems {
		if p.Kind == balance.Altered && p.Source == victim.Source && p.Sequence == victim.Sequence {
			continue // the chain says so too, where the two contents came close together
		}
		told = append(told, string(p.Kind)+" "+p.ID)
	}
	if got, want := strings.Join(told, ", "), "conflict "+victim.Id+", damaged "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
