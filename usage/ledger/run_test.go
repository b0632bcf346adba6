package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// queue is a feed of a test's own.
type queue struct{ items chan Item }

func (q *queue) Follow(ctx context.Context, _ map[string]string, items chan<- Item) error {
	for {
		select {
		case it := <-q.items:
			items <- it
		case <-ctx.Done():
			return nil
		}
	}
}

func (q *queue) Status() FeedStatus { return FeedStatus{Looked: start} }

// TestRunGoesOn: a database that fails is told, tried again, and has everything once when it works; a later writer ends it.
func TestRunGoesOn(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		q := &queue{make(chan Item, 10)}
		l := opened(t, Config{Database: database, Feed: q})
		rename := func(from, to string) {
			err := l.db.update(context.Background(), func(tx *tx) error { return tx.Exec("ALTER TABLE " + from + " RENAME TO " + to) })
			if err != nil {
				t.Fatal(err)
			}
		}
		rename("totals", "gone")
		a, u, s := request("a", 0, time.Minute)
		q.items <- Item{Record: a, Lane: "lane", Place: "1"}
		q.items <- Item{Record: u, Lane: "lane", Place: "2"}
		done := make(chan error, 1)
		go func() { done <- l.Run(context.Background()) }()
		eventually(t, func() bool { return l.Status().Err != "" })
		rename("gone", "totals")
		q.items <- Item{Record: s, Lane: "lane", Place: "3"}
		const want = "USD requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131"
		eventually(t, func() bool {
			rows, _, err := l.Sums(context.Background(), Query{Limit: 10})
			return err == nil && say(rows) == want
		})
		eventually(t, func() bool { return l.Status().Err == "" })
		second := opened(t, Config{Database: database})
		if fmt.Sprint(second.places) != "map[lane:3]" {
			t.Errorf("places %v", second.places)
		}
		q.items <- Item{Record: s, Lane: "lane", Place: "4"}
		if err := <-done; !errors.Is(err, ErrTakenOver) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestWhereToReadOn: a partition is read on from its place; where that was removed, or is of another topic of this name, from
// the first record that there is.
func TestWhereToReadOn(t *testing.T) {
	for name, c := range map[string]struct {
		place               string
		first, last         int64
		next, skipped, lags int64
	}{
		"new":                {"", 3, 10, 3, 0, 7},
		"known":              {"7", 3, 10, 7, 0, 3},
		"at the end":         {"10", 3, 10, 10, 0, 0},
		"removed meanwhile":  {"7", 9, 10, 9, 2, 1},
		"all of it removed":  {"7", 10, 10, 10, 3, 0},
		"made anew":          {"700", 0, 10, 0, 0, 10},
		"made anew, trimmed": {"700", 4, 10, 4, 0, 6},
	} {
		k, err := NewKafka(KafkaConfig{Brokers: []string{"127.0.0.1:1"}}) // nobody is there: what matters is where it would begin
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		g, ctx := errgroup.WithContext(ctx)
		offsets := kafka.PartitionOffsets{Partition: 1, FirstOffset: c.first, LastOffset: c.last}
		k.extent(ctx, g, "lane", "topic", offsets, map[string]string{"lane": c.place}, nil)
		s := k.Status()
		if p := k.parts["lane"]; p.next != c.next || s.Skipped != uint64(c.skipped) || s.Pending != c.lags {
			t.Errorf("%s: it begins at %d, %d skipped, %d to read", name, p.next, s.Skipped, s.Pending)
		}
		// It goes on, and the topic is made anew while it runs.
		offsets.FirstOffset, offsets.LastOffset = 0, c.next-1
		if c.next > 0 {
			k.extent(ctx, g, "lane", "topic", offsets, nil, nil)
			if p := k.parts["lane"]; p.next != 0 {
				t.Errorf("%s: made anew, it begins at %d", name, p.next)
			}
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}
