package limits

import (
	"testing"
	"time"
)

// A door that lives for months does not keep the totals of every day.
func TestLedgerForgets(t *testing.T) {
	l := ledger{known: map[totalKey]int64{}}
	for day := range 90 {
		now := noon.AddDate(0, 0, day)
		c := calendarOf(now)
		l.note(now, &seen{totals: []Total{
			{ID: "a", Kind: TokensPerDay, Start: time.Unix(c[Day].start, 0), Used: 1},
			{ID: "a", Kind: TokensPerMonth, Start: time.Unix(c[Month].start, 0), Used: int64(day)},
		}})
		if n := len(l.all()); n != 2 {
			t.Fatalf("%d totals after %d days", n, day)
		}
	}
	c := calendarOf(noon.AddDate(0, 0, 89))
	if got := l.known[totalKey{"a", TokensPerMonth, c[Month].start}]; got != 89 {
		t.Errorf("the month's total is %d", got)
	}
}

// What has been given back whole is known to be 0: who was told of more must hear of it.
func TestLedgerKnowsWhatWasGivenBack(t *testing.T) {
	l := ledger{known: map[totalKey]int64{}}
	c := calendarOf(noon)
	l.note(noon, &seen{totals: []Total{{ID: "a", Kind: TokensPerDay, Start: time.Unix(c[Day].start, 0), Used: 7}}})
	l.note(noon, &seen{glances: []glance{{id: "a"}, {id: "b"}}})
	if all := l.all(); len(all) != 1 || all[0].ID != "a" || all[0].Used != 0 {
		t.Errorf("%+v", all)
	}
}
