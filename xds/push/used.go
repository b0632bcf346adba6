package push

import (
	"container/list"
	"errors"
	"sync"
	"time"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
)

// used adds up what limits have counted at all stores, by limit, kind and period. It forgets what is over.
type used struct {
	hub string // this start of the hub

	mu     sync.Mutex
	seq    uint64
	byKey  map[usedKey]*list.Element
	recent list.List // of *usedEntry, the one changed last at the front
	stores map[string]*usedStore
	day    int64 // since the epoch, of the last forgetting
}

type usedKey struct {
	limit string
	kind  hubv1.Kind
	start int64
}

// usedEntry is one sum. seq is of its last change, by one store; other of the last change by another store than that.
type usedEntry struct {
	usedKey
	sum        int64
	by         uint32
	seq, other uint64
	parts      []usedPart
}

// usedStore is who counts. Its number names it cheaply in entries.
type usedStore struct {
	number uint32
	parts  int // sums that it is in
}

type usedPart struct {
	store uint32
	used  int64
}

const (
	// mostUsed bounds the sums, some 200 bytes each.
	mostUsed = 1 << 22
	// mostOfStore is how many sums one store may be in: one that lies leaves room for others.
	mostOfStore = mostUsed / 2
	// mostStores bounds the names of stores; a door that counts by itself is a new one at each start.
	mostStores = 1 << 18
	// mostLimit is the longest name of a limit, in bytes.
	mostLimit = 512
	// mostCount is where a count ends, as limits has it.
	mostCount = 1 << 52
	// usedLinger is how long a period is kept after its end.
	usedLinger = time.Hour
	// usedEarly is how far the clock of who counts may be before ours: doors forget a period when they hear of the next.
	usedEarly = time.Minute
)

var errUsedFull = errors.New("there are too many sums of usage")

func newUsed(hub string) *used {
	return &used{hub: hub, byKey: map[usedKey]*list.Element{}, stores: map[string]*usedStore{}}
}

// take notes what a store has counted: absolute, so that it may be told again.
func (u *used) take(store string, totals []*hubv1.Total, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if day := now.Unix() / (24 * 60 * 60); day != u.day {
		u.day = day
		u.forget(now)
	}
	by := u.stores[store]
	if by == nil {
		if len(u.stores) >= mostStores {
			return errUsedFull
		}
		by = &usedStore{number: uint32(len(u.stores) + 1)}
		u.stores[store] = by
	}
	for _, t := range totals {
		key := usedKey{t.GetLimit(), t.GetKind(), t.GetStart()}
		if len(key.limit) > mostLimit || early(key, now) || over(key, now) || t.GetUsed() < 0 {
			continue
		}
		if by.parts >= mostOfStore {
			return errUsedFull
		}
		if u.byKey[key] == nil && len(u.byKey) >= mostUsed {
			if u.forget(now); len(u.byKey) >= mostUsed {
				return errUsedFull
			}
		}
		u.note(key, by, min(t.GetUsed(), mostCount))
	}
	return nil
}

func (u *used) note(key usedKey, by *usedStore, value int64) {
	at := u.byKey[key]
	if at == nil {
		if value == 0 {
			return
		}
		at = u.recent.PushFront(&usedEntry{usedKey: key})
		u.byKey[key] = at
	}
	e := at.Value.(*usedEntry)
	store, parts := by.number, len(e.parts)
	changed := e.set(store, value)
	by.parts += len(e.parts) - parts
	if !changed {
		return
	}
	u.seq++
	if e.by != store {
		e.other, e.by = e.seq, store
	}
	e.seq = u.seq
	u.recent.MoveToFront(at)
}

// set says whether a store's part is another now.
func (e *usedEntry) set(store uint32, value int64) bool {
	for i := range e.parts {
		if p := &e.parts[i]; p.store == store {
			e.sum += value - p.used
			changed := p.used != value
			p.used = value
			return changed
		}
	}
	e.parts = append(e.parts, usedPart{store, value})
	e.sum += value
	return true
}

// part is what a store has counted itself.
func (e *usedEntry) part(store uint32) int64 {
	for _, p := range e.parts {
		if p.store == store {
			return p.used
		}
	}
	return 0
}

// elsewhere gives what all stores but one have counted, of sums that others changed after since: at most so many, the oldest
// change first, and up to which change that is.
func (u *used) elsewhere(store string, since uint64, most int) (totals []*hubv1.Total, upTo uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := uint32(0)
	if s := u.stores[store]; s != nil {
		id = s.number
	}
	at := u.recent.Front()
	for at != nil && at.Next() != nil && at.Next().Value.(*usedEntry).seq > since {
		at = at.Next()
	}
	for ; at != nil; at = at.Prev() {
		e := at.Value.(*usedEntry)
		changed := e.seq
		if e.by == id {
			changed = e.other
		}
		if e.seq <= since || changed <= since {
			continue
		}
		if len(totals) == most {
			return totals, upTo
		}
		upTo = e.seq
		totals = append(totals, &hubv1.Total{Limit: e.limit, Kind: e.kind, Start: e.start, Used: min(e.sum-e.part(id), mostCount)})
	}
	return totals, u.seq
}

// forget drops what is over, and the names of stores with it where nothing is left.
func (u *used) forget(now time.Time) {
	for key, at := range u.byKey {
		if over(key, now) {
			u.recent.Remove(at)
			delete(u.byKey, key)
		}
	}
	if len(u.byKey) == 0 {
		clear(u.stores)
		return
	}
	byNumber := make(map[uint32]*usedStore, len(u.stores))
	for _, s := range u.stores {
		s.parts, byNumber[s.number] = 0, s
	}
	for _, at := range u.byKey {
		for _, p := range at.Value.(*usedEntry).parts {
			byNumber[p.store].parts++
		}
	}
}

// early says whether a key is of no period that has begun. Doors take the latest start that they hear of for the current one, so
// nobody may give them another.
func early(k usedKey, now time.Time) bool {
	start := time.Unix(k.start, 0).UTC()
	day := start.Truncate(24 * time.Hour)
	if k.kind == hubv1.Kind_KIND_REQUESTS_PER_MONTH || k.kind == hubv1.Kind_KIND_TOKENS_PER_MONTH {
		day = time.Date(start.Year(), start.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	return !start.Equal(day) || start.After(now.Add(usedEarly))
}

// over says whether a period has ended a while ago, or is none.
func over(k usedKey, now time.Time) bool {
	start := time.Unix(k.start, 0).UTC()
	switch k.kind {
	case hubv1.Kind_KIND_REQUESTS_PER_DAY, hubv1.Kind_KIND_TOKENS_PER_DAY:
		return now.After(start.AddDate(0, 0, 1).Add(usedLinger))
	case hubv1.Kind_KIND_REQUESTS_PER_MONTH, hubv1.Kind_KIND_TOKENS_PER_MONTH:
		return now.After(start.AddDate(0, 1, 0).Add(usedLinger))
	}
	return true
}
