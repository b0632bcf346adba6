package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"

	"github.com/spokegate/spokegate/sqldb"
)

// commit counts items: all that follows from them and the places behind them, in one transaction. Counting them again
// changes nothing, so one whose end is unknown is simply tried again.
func (l *Ledger) commit(ctx context.Context, items []Item) error {
	b := &batch{horizon: l.horizon, bill: l.cfg.Bill, now: l.cfg.Now().UnixNano(), entries: map[string]*held{}, tally: map[tallyKey]int{}}
	err := l.db.update(ctx, func(tx *tx) error {
		b.tx = tx
		if err := tx.mine(l.writer); err != nil {
			return err
		}
		return b.run(items)
	})
	if err != nil {
		return err
	}
	for _, it := range items {
		l.places[it.Lane] = it.Place
	}
	l.metrics.counted(b.tally)
	return nil
}

// batch is one transaction's work.
type batch struct {
	tx      *tx
	horizon int64
	bill    Bill
	now     int64 // Unix nanoseconds
	entries map[string]*held
	refused []refusal
	told    []*usagev1.Record // balances
	tally   map[tallyKey]int
}

type tallyKey struct {
	kind   string
	result verdict
}

// held is an admission in the batch.
type held struct {
	*entry
	known, changed bool // known: it is in the database
	day            int64
	was            bucket // what it has added there
	had            Amounts
	added          bool
}

func (b *batch) run(items []Item) error {
	if err := b.load(items); err != nil {
		return err
	}
	for _, it := range items {
		b.judge(it)
	}
	return firstError(b.save, b.sum, b.refuse, b.tell, func() error { return b.goOn(items) })
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// load reads the admissions that the items speak of.
func (b *batch) load(items []Item) error {
	for _, it := range items {
		if it.Record != nil && counts(it.Record.Kind) && b.entries[it.Record.Admission] == nil && malformed(it.Record) == "" {
			b.entries[it.Record.Admission] = &held{entry: new(entry)}
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(b.entries)), 128) {
		args := make([]any, len(ids))
		for i, id := range ids {
			args[i] = id
		}
		err := b.tx.Each(func(scan func(...any) error) error {
			var id string
			var state []byte
			h := &held{known: true}
			if err := scan(&id, &h.day, &state); err != nil {
				return err
			}
			var err error
			if h.entry, err = decodeEntry(state); err != nil {
				return err
			}
			h.was, h.had, h.added = h.amounts(b.bill)
			b.entries[id] = h
			return nil
		}, `SELECT admission, day, state FROM admissions WHERE admission IN `+sqldb.Many(1, len(ids)), args...)
		if err != nil {
			return err
		}
	}
	return nil
}

func counts(kind string) bool {
	return kind == usage.KindAdmitted || kind == usage.KindUsage || kind == usage.KindServed
}

// judge takes one item into the batch.
func (b *batch) judge(it Item) {
	r := it.Record
	result := ignored
	switch {
	case it.Err != nil:
		r = &usagev1.Record{Kind: "unknown"}
		result = b.refusal(it, unreadable, it.Err.Error())
	case whole(r):
		b.told, result = append(b.told, r), counted
	case counts(r.Kind):
		result = b.count(it)
	}
	b.tally[tallyKey{r.Kind, result}]++
}

func (b *batch) count(it Item) verdict {
	r := it.Record
	if what := malformed(r); what != "" {
		return b.refusal(it, impossible, what)
	}
	h := b.entries[r.Admission]
	at := timeOf(r)
	if !h.known && !h.changed && at < b.horizon {
		return b.refusal(it, tooLate, "older than the admissions that are known: it may have been counted")
	}
	result := h.take(r)
	if result == counted {
		h.changed, h.day = true, max(h.day, at/day)
	}
	return result
}

const day = 24 * hour

// malformed tells why a record cannot be counted; empty: it can.
func malformed(r *usagev1.Record) string {
	switch {
	case r.Kind == usage.KindServed && !strings.HasPrefix(r.Id, usage.ServedID(r.Admission, r.Attempt, "")),
		r.Kind == usage.KindUsage && r.Id != usage.UsageID(r.Admission), r.Kind == usage.KindAdmitted && r.Id != usage.AdmittedID(r.Admission):
		return "its id is not of its admission and kind"
	case r.Admission == "" || len(r.Admission) > 256:
		return "no admission, or one of more than 256 bytes"
	case timeOf(r) < 0 || timeOf(r) > 1<<38:
		return "no time, or none that can be"
	}
	for _, n := range []*int64{r.PromptTokens, r.CachedTokens, r.CompletionTokens, r.ReasoningTokens} {
		if n != nil && (*n < 0 || *n > maxTokens) {
			return fmt.Sprintf("%d tokens are no number of tokens", *n)
		}
	}
	for _, s := range append(labelTexts(r.Labels), r.Id, r.Source, r.Key, r.Team, r.Model, r.Price.GetCurrency()) {
		if strings.ContainsRune(s, 0) {
			return "a text with a zero byte" // PostgreSQL holds none
		}
	}
	return ""
}

func labelTexts(labels map[string]string) (list []string) {
	for name, value := range labels {
		list = append(list, name, value)
	}
	return list
}

// save writes the admissions that changed.
func (b *batch) save() error {
	var changed []string
	for id, h := range b.entries {
		if h.changed {
			changed = append(changed, id)
		}
	}
	slices.Sort(changed)
	for ids := range slices.Chunk(changed, 128) {
		args := make([]any, 0, 4*len(ids))
		for _, id := range ids {
			h := b.entries[id]
			state, err := h.encode()
			if err != nil {
				return err
			}
			var openAt any
			if h.open() {
				openAt = timeOf(h.admitted)
			}
			args = append(args, id, h.day, openAt, state)
		}
		err := b.tx.Exec(`INSERT INTO admissions (admission, day, open_at, state) VALUES `+sqldb.Many(len(ids), 4)+
			` ON CONFLICT (admission) DO UPDATE SET day = excluded.day, open_at = excluded.open_at, state = excluded.state`, args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// goOn notes the places behind the items.
func (b *batch) goOn(items []Item) error {
	places := map[string]string{}
	for _, it := range items {
		places[it.Lane] = it.Place
	}
	for _, lane := range slices.Sorted(maps.Keys(places)) {
		err := b.tx.Exec(`INSERT INTO lanes (lane, place) VALUES (?, ?) ON CONFLICT (lane) DO UPDATE SET place = excluded.place`, lane, places[lane])
		if err != nil {
			return err
		}
	}
	return nil
}

// digest names a row by what it is about, however long that is.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
