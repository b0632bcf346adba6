package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/usage/balance"
)

// TestReconcile lets clients come and leave while a worker and the door are killed, and proves the records: from the spools and from the real
// Kafka, as they are, repaired, and tampered with.
func TestReconcile(t *testing.T) {
	t.Parallel()
	k := newBroker(t)
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	s := besiege(t, "reconcile", func(o *upOptions) { o.losing = true }, nil, "SPOKEGATE_KAFKA="+k.addr)
	l := startLoad(s.ups, 7)
	defer l.stop()
	l.whole(t, 60)
	killsMidStream("worker")(t, s)
	l.whole(t, 30)
	s.lost = true
	killDoor(t, s)
	l.whole(t, 30)
	l.stop()
	s.free(t)
	u := s.ups[0]
	eventually(t, kafkaPatience, func() error {
		if page := u.page(t, "/readyz"); !strings.Contains(page, "records shipped, 0 bytes wait") {
			return fmt.Errorf("not all is shipped: %s\n%s", page, k.running.report())
		}
		return nil
	})
	ops := t.TempDir() // of whom reconciles: the door's folder is not theirs to write to
	before := reconciles(t, 1, 0, "-settle", "0s", "-dir", u.dir)
	for _, p := range before.Problems {
		if p.Kind != balance.MissingUsage && p.Kind != balance.MissingAdmitted && p.Kind != balance.Uncounted {
			t.Errorf("kills cannot do this: %v", p)
		}
	}
	t.Logf("after the kills: %v", before.Counts)
	repaired := reconciles(t, 0, 0, "-settle", "0s", "-dir", ops, "-kafka", k.addr, "-repair", "-as", "ops")
	t.Logf("repaired: %v", repaired.Counts)
	dirs := u.dir
	if _, err := os.Stat(filepath.Join(ops, "spool")); err == nil {
		dirs += "," + ops
	}
	eventually(t, kafkaPatience, func() error { // late originals come to the one before the other
		a := reconciles(t, 0, 0, "-settle", "0s", "-dir", ops, "-kafka", k.addr).Total
		b := reconciles(t, 0, 0, "-settle", "0s", "-dir", dirs).Total
		a.Doubled, b.Doubled = 0, 0
		if a != b || a.Open != 0 || a.Admitted != a.Usage || a.Admitted < 120 {
			return fmt.Errorf("from Kafka %+v, from the spools %+v", a, b)
		}
		return nil
	})
	tamperedTopic(t, k, u.dir)
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
	r := reconciles(t, 1, 1, "-settle", "0s", "-kafka", k.addr)
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
