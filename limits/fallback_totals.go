package limits

import (
	"context"
	"maps"
	"sync"
	"time"
)

// totalsLen is how many limits' totals one beat reads; the beats go round.
const totalsLen = 4096

// ledger is what is known of the primary's totals, for the day on which it has lost them.
type ledger struct {
	memory string // the primary's, by the last beat; used by run alone
	next   int    // where the next beat goes on; used by run alone

	mu    sync.Mutex
	known map[totalKey]int64
	day   int64 // of the last forgetting
	owed  bool  // there is something known that the primary may not have heard
}

type totalKey struct {
	id    string
	kind  Kind
	start int64 // Unix seconds
}

func (t *Total) key() totalKey { return totalKey{t.ID, t.Kind, t.Start.Unix()} }

// note takes what was seen in place of what is known. With a new day it forgets what is over.
func (l *ledger) note(now time.Time, s *seen) {
	c := calendarOf(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c[Day].start != l.day {
		l.day = c[Day].start
		maps.DeleteFunc(l.known, func(k totalKey, _ int64) bool { return k.start < c[k.kind.span()].start })
	}
	for i := range s.glances {
		for _, k := range long { // nothing is counted any more of what is not among the totals
			if key := (totalKey{s.glances[i].id, k, c[k.span()].start}); l.known[key] != 0 {
				l.known[key] = 0
			}
		}
	}
	for i := range s.totals {
		l.known[s.totals[i].key()] = s.totals[i].Used
	}
}

// raise takes totals where they are higher than those known. The primary is owed them from now on.
func (l *ledger) raise(ts []Total) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ts {
		l.known[ts[i].key()] = max(l.known[ts[i].key()], ts[i].Used)
	}
	l.owed = true
}

// all gives what is known.
func (l *ledger) all() []Total {
	l.mu.Lock()
	defer l.mu.Unlock()
	ts := make([]Total, 0, len(l.known))
	for k, used := range l.known {
		ts = append(ts, Total{ID: k.id, Kind: k.kind, Start: time.Unix(k.start, 0).UTC(), Used: used})
	}
	return ts
}

// isOwed says whether totals are owed, and pays by the way.
func (l *ledger) isOwed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	owed := l.owed
	l.owed = false
	return owed
}

// Totals implements Rebuilder. While the primary is away they are those of this door.
func (f *Fallback) Totals(ctx context.Context, now time.Time, ids []string) ([]Total, error) {
	if before := f.outage.Load(); !before.away() {
		ts, err := f.primary.Totals(ctx, now, ids)
		if err == nil || !f.failed(before, now, err) || left(ctx) {
			return ts, err
		}
	}
	return f.local.Totals(ctx, now, ids)
}

// Raise implements Rebuilder. While the primary is away, this door's share of them counts, and the primary gets them when
// it is back.
func (f *Fallback) Raise(ctx context.Context, now time.Time, ts []Total) error {
	f.ledger.raise(ts)
	f.local.raiseShared(now, shareOf(ts, f.primary.Doors()))
	before := f.outage.Load()
	if before.away() {
		return nil
	}
	err := f.primary.Raise(ctx, now, ts)
	if err != nil && f.failed(before, now, err) && !left(ctx) {
		return nil
	}
	return err
}

// rebuild gives the primary what it has lost, or has not heard yet. Called by run when the primary has answered. What was seen
// before is believed where the primary's memory was the same before and after, and nobody knew better meanwhile.
func (f *Fallback) rebuild(ctx context.Context, now time.Time, before *seen) error {
	l := &f.ledger
	memory := f.primary.Memory()
	lost := l.memory != "" && memory != l.memory
	owed := l.isOwed()
	if before != nil && !owed && memory != "" && memory == l.memory {
		l.note(now, before)
		f.local.shareIn(before.glances, shareOf(before.totals, f.primary.Doors()))
	}
	if lost || owed {
		if err := f.giveBack(ctx, now); err != nil {
			l.raise(nil) // it is still owed
			return err
		}
	}
	if lost {
		f.metrics.rebuilt.Inc()
		f.cfg.Log.Warn("limits: the shared store has lost its memory; its counts of the day and the month are put back as far as known")
	}
	l.memory = memory
	return nil
}

// giveBack raises the primary's totals to those last known, and to those of this door, which are part of them. They may hold
// reservations that were settled since.
func (f *Fallback) giveBack(ctx context.Context, now time.Time) error {
	for next := -1; next != 0; {
		gs, following := f.local.glances(max(0, next), totalsLen)
		own, err := f.local.Totals(ctx, time.Time{}, idsOf(gs)) // as of its last request
		if err == nil {
			err = f.primary.Raise(ctx, now, own)
		}
		if err != nil {
			return err
		}
		next = following
	}
	known := f.ledger.all() // those that are over are ignored
	for len(known) > 0 {
		n := min(totalsLen, len(known))
		if err := f.primary.Raise(ctx, now, known[:n]); err != nil {
			return err
		}
		known = known[n:]
	}
	return nil
}

// seen is what the primary's totals were, and just before that this door's counts.
type seen struct {
	glances []glance
	totals  []Total
}

// see reads the next few totals: they are what a store that loses its memory is given back, and this door counts its share of
// them, so that while the primary is away all doors share what is left and not the whole. Called by run.
func (f *Fallback) see(ctx context.Context, now time.Time) *seen {
	l := &f.ledger
	var s seen
	if s.glances, l.next = f.local.glances(l.next, totalsLen); len(s.glances) == 0 {
		return nil
	}
	var err error
	if s.totals, err = f.primary.Totals(ctx, now, idsOf(s.glances)); err != nil {
		f.cfg.Log.Debug("limits: totals not read, the next beat will", "err", err)
		return nil
	}
	return &s
}

func idsOf(gs []glance) []string {
	ids := make([]string, len(gs))
	for i := range gs {
		ids[i] = gs[i].id
	}
	return ids
}

// shareOf gives a door's part of what is used, rounded up.
func shareOf(ts []Total, doors int) []Total {
	part := make([]Total, len(ts))
	for i, t := range ts {
		t.Used = (t.Used + int64(doors) - 1) / int64(doors)
		part[i] = t
	}
	return part
}
