package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestRejections: what is refused is in a journal of its own when the door has stopped, whatever Kafka does, and the pages say
// what is wrong.
func TestRejections(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, brokers := range map[string]string{"without Kafka": "", "Kafka is away": "127.0.0.1:9"} {
		t.Run(name, func(t *testing.T) {
			d := doorFlags{name: "main", spoke: "here", dir: t.TempDir(), kafka: kafkaFlags{brokers: brokers}}
			registry := newRegistry()
			r, err := openRejections(d, registry, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- r.run(ctx) }()
			for i := range 50 {
				r.Refuse(usage.Refusal{Alike: usage.Alike{Code: "c", Status: 401}, Admission: fmt.Sprint(i), At: time.Now()})
			}
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			done, cancel := context.WithCancel(t.Context())
			if brokers != "" {
				cancel() // it waits for nobody
			}
			if err := r.close(done); err != nil && brokers == "" {
				t.Fatal(err)
			}
			cancel()
			told := uint64(0)
			if _, err := usage.Read(spoolDir(d.dir), func(rec *usagev1.Record) error {
				told += rec.GetRejection().GetCount()
				if rec.Source != "rejected/door/main" {
					t.Errorf("%v", rec)
				}
				return nil
			}); err != nil || told+lost(r) != 50 && brokers == "" || told > 50 {
				t.Errorf("%v: the records tell of %d refusals", err, told)
			}
			r.Refuse(usage.Refusal{Alike: usage.Alike{Code: "c"}, At: time.Now()})
			var page report
			r.note(&page)
			if got := strings.Join(page.lines, "\n"); !strings.Contains(got, "note refusals: ") {
				t.Errorf("what came too late is not on the page: %s", got)
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range families {
				if strings.HasPrefix(f.GetName(), "spokegate_rejected") {
					names = append(names, strings.TrimPrefix(f.GetName(), "spokegate_rejected_"))
				}
			}
			want := map[bool]string{true: "lost_total records_total spool_bytes", false: "lag_bytes lost_total records_total spool_bytes"}[brokers == ""]
			if got := strings.Join(names, " "); got != want {
				t.Errorf("metrics %s, want %s", got, want)
			}
		})
	}
}

func lost(r *rejections) uint64 { return r.journal.spool.Stats().Lost }
