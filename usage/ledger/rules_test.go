package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// say is rows in few words: the group, the currency, and the amounts that are not 0.
func say(rows []Row) string {
	var lines []string
	for _, r := range rows {
		words := append(append([]string{}, r.Group...), r.Currency)
		for i, n := range r.Amounts {
			if n != 0 {
				words = append(words, fmt.Sprintf("%s=%d", amountNames[i], n))
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

func wants(t *testing.T, l *Ledger, want string, group ...string) {
	t.Helper()
	if got := say(sums(t, l, group...)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLateOriginal: a repair counts until the original comes; then that counts, in its own hour, and nothing of the repair.
func TestLateOriginal(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		a, u, s := request("a", 0, 90*time.Minute)
		repair := repairOf(u, 7)
		repair.EndedAt, repair.CompletionTokens = a.AdmittedAt, nil
		take(t, l, a, repair)
		wants(t, l, "2026-03-01T09:00:00Z USD requests=1 repaired=1 unknown_tokens=1 unknown_cost=1 unserved=1 prompt_tokens=100 cached_tokens=10", "hour")
		take(t, l, s)
		wants(t, l, "2026-03-01T09:00:00Z USD requests=1 repaired=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131", "hour")
		take(t, l, u)
		wants(t, l, "2026-03-01T10:00:00Z USD requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131", "hour")
		take(t, l, repair, a, u, s)
		wants(t, l, "2026-03-01T10:00:00Z USD requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131", "hour")
	})
}

// TestBill: of a cut stream the worker knows more than the client got.
func TestBill(t *testing.T) {
	for bill, want := range map[Bill]string{
		Generated: "USD requests=1 cut=1 differing=1 prompt_tokens=100 cached_tokens=10 completion_tokens=57 undelivered_tokens=37 cost=205",
		Delivered: "USD requests=1 cut=1 differing=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 undelivered_tokens=37 cost=131",
	} {
		l := opened(t, Config{Database: t.TempDir() + "/l.db", Bill: bill})
		a, u, s := request("a", 0, time.Minute)
		u.Outcome, s.Outcome, s.CompletionTokens = usage.OutcomeClientCut, usage.OutcomeClientCut, proto.Int64(57)
		take(t, l, s, u, a)
		wants(t, l, want)
	}
}

// TestUnknown: what nobody knows is told as unknown, and never added as 0 that is known; what nobody served is known to be nothing.
func TestUnknown(t *testing.T) {
	l := opened(t, Config{Database: t.TempDir() + "/l.db"})
	a, u, _ := request("a", 0, time.Minute)
	u.PromptTokens, u.CompletionTokens, u.CachedTokens = nil, nil, nil
	a2, u2, _ := request("b", 0, time.Minute)
	u2.PromptTokens, u2.CompletionTokens, u2.CachedTokens, u2.Outcome = nil, nil, nil, usage.OutcomeNotServed
	a3, u3, _ := request("c", 0, time.Minute)
	u3 = proto.CloneOf(u3)
	u3.PromptTokens, u3.CompletionTokens, u3.CachedTokens, u3.Outcome, u3.Anomalies = nil, nil, nil, usage.OutcomeNotServed, []string{usage.Repaired, unwitnessed}
	take(t, l, a, u, a2, u2, a3, u3)
	wants(t, l, "USD requests=3 repaired=1 not_served=2 unknown_tokens=2 unknown_cost=2 unserved=1")
}

// TestCurrencies are never added up, and a price that only the admission has counts.
func TestCurrencies(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		for i, c := range []string{"USD", "EUR", "USD", ""} {
			a, u, s := request(fmt.Sprint(i), 0, time.Minute)
			a.Price.Currency, u.Price = c, nil
			if c == "" {
				a.Price = nil
			}
			take(t, l, a, u, s)
		}
		wants(t, l, "t  requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20\n"+
			"t EUR requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131\n"+
			"t USD requests=2 prompt_tokens=200 cached_tokens=20 completion_tokens=40 cost=262", "team")
	})
}

// TestRefused lists what cannot be counted, once each, and counts the rest.
func TestRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		_, fine, _ := request("a", 0, time.Minute)
		spoil := func(id string, f func(*usagev1.Record)) *usagev1.Record {
			_, u, _ := request(id, 0, time.Minute)
			f(u)
			return u
		}
		list := []*usagev1.Record{
			fine,
			spoil("b", func(r *usagev1.Record) { r.PromptTokens = proto.Int64(-1) }),
			spoil("c", func(r *usagev1.Record) { r.CompletionTokens = proto.Int64(math.MaxInt64) }),
			spoil("d", func(r *usagev1.Record) { r.Id = "x/usage" }),
			spoil("e", func(r *usagev1.Record) { r.EndedAt, r.AdmittedAt = nil, nil }),
			spoil("f", func(r *usagev1.Record) { r.Team = "a\x00b" }),
			spoil("g", func(r *usagev1.Record) { r.Labels = map[string]string{"x": "\x00"} }),
			spoil("", func(r *usagev1.Record) {}),
		}
		items := []Item{{Err: errors.New("no record\x00"), Lane: "lane", Place: "x", Where: "topic t, offset 7"}}
		for i, r := range list {
			items = append(items, Item{Record: r, Lane: "lane", Place: fmt.Sprint(i)})
		}
		for range 2 {
			if err := l.commit(context.Background(), items); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, l, "USD requests=1 unserved=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131")
		s, err := l.State(context.Background(), time.Time{}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Refused.Counts); got != "map[impossible:7 unreadable:1]" || len(s.Refused.Latest) != 8 {
			t.Errorf("%s, %d listed", got, len(s.Refused.Latest))
		}
	})
}

// TestTooLate: an admission is forgotten when all is read and it is old; what comes then is refused, and what is younger counts.
func TestTooLate(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		now := start
		l := opened(t, Config{Database: database, Keep: 72 * time.Hour, Now: func() time.Time { return now }})
		a, u, s := request("a", 0, time.Minute)
		_, old, _ := request("old", time.Hour, time.Minute)
		take(t, l, a, u)
		now = start.Add(72 * time.Hour)
		forgetAll(t, l)
		take(t, l, s) // it is three days old, and known
		want := "USD requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131"
		wants(t, l, want)
		now = start.Add(100 * time.Hour)
		forgetAll(t, l)
		take(t, l, u, s, old)
		wants(t, l, want)
		_, young, _ := request("young", 60*time.Hour, time.Minute)
		take(t, l, young)
		wants(t, l, "USD requests=2 unserved=1 prompt_tokens=200 cached_tokens=20 completion_tokens=40 cost=262")
		st, err := l.State(context.Background(), time.Time{}, time.Hour)
		if err != nil || fmt.Sprint(st.Refused.Counts) != "map[too_late:3]" {
			t.Errorf("%v, %v", st.Refused.Counts, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = opened(t, Config{Database: database, Keep: 1000 * time.Hour, Now: func() time.Time { return now }}) // what is forgotten stays so
		take(t, l, u)
		wants(t, l, "USD requests=2 unserved=1 prompt_tokens=200 cached_tokens=20 completion_tokens=40 cost=262")
	})
}

func forgetAll(t *testing.T, l *Ledger) {
	t.Helper()
	for {
		if all, err := l.forget(context.Background()); err != nil {
			t.Fatal(err)
		} else if all {
			return
		}
	}
}

// TestOverflow: a sum that no column holds is an error, and nothing of its transaction counts.
func TestOverflow(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		l := opened(t, Config{Database: database})
		a, u, s := request("a", 0, time.Minute)
		take(t, l, a, u, s)
		err := l.db.update(context.Background(), func(tx *tx) error {
			return tx.Exec(`UPDATE totals SET prompt_tokens = ?`, int64(math.MaxInt64-150))
		})
		if err != nil {
			t.Fatal(err)
		}
		_, b, _ := request("b", 0, time.Minute)
		take(t, l, b) // 50 are left
		_, c, _ := request("c", 0, time.Minute)
		_, d, _ := request("d", 24*time.Hour, time.Minute)
		items := []Item{{Record: c, Lane: "lane", Place: "9"}, {Record: d, Lane: "lane", Place: "10"}}
		if err := l.commit(context.Background(), items); !errors.Is(err, errOverflow) {
			t.Fatal(err)
		}
		if rows := sums(t, l); len(rows) != 1 || rows[0].Amounts[Prompt] != math.MaxInt64-50 || rows[0].Amounts[Requests] != 2 {
			t.Errorf("%s", say(rows))
		}
		// A sum over rows has the same end.
		c.EndedAt = timestamppb.New(start.Add(48 * time.Hour))
		take(t, l, c)
		if _, _, err := l.Sums(context.Background(), Query{Limit: 1}); err == nil {
			t.Error("a sum beyond 64 bits is told")
		}
	})
}

// TestTakenOver: of two writers the later one writes.
func TestTakenOver(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		first := opened(t, Config{Database: database})
		second := opened(t, Config{Database: database})
		a, u, s := request("a", 0, time.Minute)
		take(t, second, a, u, s)
		if err := first.commit(context.Background(), []Item{{Record: u, Lane: "lane", Place: "0"}}); !errors.Is(err, ErrTakenOver) {
			t.Errorf("the first one: %v", err)
		}
		if _, err := first.forget(context.Background()); !errors.Is(err, ErrTakenOver) {
			t.Errorf("the first one forgets: %v", err)
		}
		wants(t, second, "USD requests=1 prompt_tokens=100 cached_tokens=10 completion_tokens=20 cost=131")
	})
}

// TestOpenRefuses what would make sums wrong, or cannot be.
func TestOpenRefuses(t *testing.T) {
	ctx := context.Background()
	file := t.TempDir() + "/l.db"
	if err := opened(t, Config{Database: file}).Close(); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"bills what was generated":    {Database: file, Bill: Delivered},
		`bill what was "half"`:        {Database: file, Bill: "half"},
		"cannot be kept for 1h":       {Database: file, Keep: time.Hour},
		"begins with postgres://":     {Database: "mysql://x"},
		"no such file or directory":   {Database: "/nowhere/at/all.db"},
		"nobody:xxxxx@127.0.0.1:1/db": {Database: "postgres://nobody:secret@127.0.0.1:1/db"},
	} {
		cfg.Feed = &noFeed{}
		_, err := Open(ctx, cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestMigrations opens databases of every older schema, and refuses a newer one.
func TestMigrations(t *testing.T) {
	ctx := context.Background()
	onBoth(t, func(t *testing.T, database string) {
		old, err := openDatabase(database)
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Migrate(ctx, migrations[:1]); err != nil {
			t.Fatal(err)
		}
		err = old.update(ctx, func(tx *tx) error {
			return errors.Join(tx.Exec(`INSERT INTO lanes (lane, place) VALUES ('kafka x', '42')`),
				tx.Exec(`INSERT INTO dims VALUES (1, 'd', 't', 'k', 'm', '', 'USD')`), tx.Exec(storeRows(1), totalsRow(0, 1, 5)...))
		})
		if err := errors.Join(err, old.Close()); err != nil {
			t.Fatal(err)
		}
		l := opened(t, Config{Database: database})
		if l.places["kafka x"] != "42" {
			t.Errorf("places %v", l.places)
		}
		wants(t, l, "t USD requests=5", "team")
		a, u, s := request("a", 0, time.Minute)
		bad := proto.CloneOf(u)
		bad.Id = "nonsense"
		take(t, l, a, u, s, bad) // what the newer steps brought
		if err := l.db.update(ctx, func(tx *tx) error { return tx.Set("schema", "99") }); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ctx, Config{Database: database, Feed: &noFeed{}}); err == nil || !strings.Contains(err.Error(), "of a newer version") {
			t.Errorf("a newer schema: %v", err)
		}
	})
}

func totalsRow(hour, dim, requests int64) []any {
	args := []any{hour, dim, requests}
	for range int(amountCount) - 1 {
		args = append(args, int64(0))
	}
	return args
}
