package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// TestAnyOrder holds the ledger against the oracle: records in any order, some twice or more often, in batches of any size,
// with a restart now and then, and some batches again after they were counted, as after a commit whose end nobody saw.
func TestAnyOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		for i, bill := range []Bill{Generated, Delivered} {
			t.Run(string(bill), func(t *testing.T) {
				if i > 0 {
					if database = database + "2"; isPostgres(database) {
						database = thePostgres.Database(t)
					}
				}
				anyOrder(t, Config{Database: database, Bill: bill}, uint64(i))
			})
		}
	})
}

func isPostgres(database string) bool { return len(database) > 11 && database[:11] == "postgres://" }

func anyOrder(t *testing.T, cfg Config, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	list := traffic(rnd, 200)
	want := oracle(list, cfg.Bill)
	var repairs, conflicts int
	for _, a := range want {
		repairs += int(a[Repaired])
		conflicts += int(a[Differing])
	}
	if len(want) < 100 || repairs == 0 || conflicts == 0 {
		t.Fatalf("%d rows, %d repairs, %d differences: the traffic proves nothing", len(want), repairs, conflicts)
	}
	todo := shuffled(rnd, list)
	for range 100 {
		todo = append(todo, list[rnd.IntN(len(list))])
	}
	todo = shuffled(rnd, todo)
	l := opened(t, cfg)
	for len(todo) > 0 {
		n := min(1+rnd.IntN(120), len(todo))
		batch := todo[:n]
		todo = todo[n:]
		take(t, l, batch...)
		switch rnd.IntN(6) {
		case 0:
			take(t, l, batch...)
		case 1:
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = opened(t, cfg)
		}
	}
	if diff := oracleDiff(asOracle(sums(t, l, oracleGroup...)), want); diff != "" {
		t.Fatal(diff)
	}
	take(t, l, list...)
	if diff := oracleDiff(asOracle(sums(t, l, oracleGroup...)), want); diff != "" {
		t.Fatalf("all of them again: %s", diff)
	}
	paged(t, l, want)
}

// paged reads the same in pages of three rows.
func paged(t *testing.T, l *Ledger, want map[string]Amounts) {
	t.Helper()
	var all []Row
	q := Query{Group: oracleGroup, Limit: 3}
	for {
		rows, next, err := l.Sums(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rows...)
		if next == "" {
			break
		}
		if q.After, err = decodeAfter(next); err != nil {
			t.Fatal(err)
		}
	}
	if diff := oracleDiff(asOracle(all), want); diff != "" || len(all) != len(want) {
		t.Fatalf("%d rows in pages, want %d: %s", len(all), len(want), diff)
	}
}

// TestEntryOrder takes few records of one admission in every order.
func TestEntryOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for round := range 200 {
		list := traffic(rnd, 1)
		var want string
		for range 20 {
			e := new(entry)
			for _, r := range append(shuffled(rnd, list), list[rnd.IntN(len(list))]) {
				e.take(r)
			}
			state, err := e.encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := decodeEntry(state)
			if err != nil {
				t.Fatal(err)
			}
			b, a, adds := back.amounts(Generated)
			if got := fmt.Sprint(b, a, adds); want == "" {
				want = got
			} else if got != want {
				t.Fatalf("round %d: %s, in another order %s: %v", round, got, want, []*usagev1.Record(list))
			}
		}
	}
}
