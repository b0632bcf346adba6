package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// entry is all that the journals say of one admission.
type entry struct {
	admitted, usage []*usagev1.Record
	served          []*usagev1.Record
}

// ledger follows the spool of one installation.
type ledger struct {
	dir    string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of following; read it after done

	mu       sync.Mutex
	entries  map[string]*entry
	refusals []string      // ids of which there must be no record at the end
	changed  chan struct{} // closed with the next record
}

func newLedger(dir string) *ledger {
	ctx, cancel := context.WithCancel(context.Background())
	l := &ledger{dir: dir, cancel: cancel, done: make(chan struct{}), entries: map[string]*entry{}, changed: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = usage.Tail(ctx, dir, l.take)
	}()
	return l
}

func (l *ledger) take(r *usagev1.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	note(l.entries, r)
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

func note(entries map[string]*entry, r *usagev1.Record) {
	if r.GetAdmission() == "" || r.GetKind() == usage.KindRejected {
		return // about a source, or no admission
	}
	e := entries[r.GetAdmission()]
	if e == nil {
		e = &entry{}
		entries[r.GetAdmission()] = e
	}
	switch r.GetKind() {
	case usage.KindAdmitted:
		e.admitted = append(e.admitted, r)
	case usage.KindUsage:
		e.usage = append(e.usage, r)
	case usage.KindServed:
		e.served = append(e.served, r)
	}
}

// get is a copy of what is known of an admission now.
func (l *ledger) get(admission string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[admission]; e != nil {
		return *e
	}
	return entry{}
}

// journalPatience is how long a record may take after the end: the flight's grace for facts that do not come, and the disk.
const journalPatience = 2 * time.Minute

// usage waits for the usage record of an admission.
func (l *ledger) usage(t testing.TB, admission string) *usagev1.Record {
	t.Helper()
	return l.await(t, admission, "usage", func(e entry) bool { return len(e.usage) > 0 }).usage[0]
}

// served waits for the record of the shim.
func (l *ledger) served(t testing.TB, admission string) *usagev1.Record {
	t.Helper()
	return l.await(t, admission, "served", func(e entry) bool { return len(e.served) > 0 }).served[0]
}

func (l *ledger) await(t testing.TB, admission, what string, there func(entry) bool) entry {
	t.Helper()
	if admission == "" {
		t.Fatal("the response named no x-request-id, so there is no admission to look for")
	}
	late := time.After(journalPatience)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if e := l.get(admission); there(e) {
			return e
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no %s record of admission %s within %v; there is %+v", what, admission, journalPatience, l.get(admission))
		}
	}
}

// refused notes a request that must not be in any journal when the installation has stopped.
func (l *ledger) refused(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals = append(l.refusals, id)
}

// open are the admissions that have no usage record yet.
func (l *ledger) open() []*usagev1.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*usagev1.Record
	for _, e := range l.entries {
		if len(e.admitted) > 0 && len(e.usage) == 0 {
			out = append(out, e.admitted[0])
		}
	}
	return out
}

// settles waits until every admission has its usage record.
func (l *ledger) settles(t testing.TB) {
	t.Helper()
	eventually(t, journalPatience, func() error {
		if open := l.open(); len(open) > 0 {
			return fmt.Errorf("%d admissions have no usage record, such as %v", len(open), open[0])
		}
		return nil
	})
}

// close ends following, reads all journals again from the disk, and checks what must hold for every installation.
func (l *ledger) close(whole bool) error {
	if l == nil {
		return nil
	}
	l.cancel()
	<-l.done
	var errs []error
	if l.err != nil && !errors.Is(l.err, context.Canceled) {
		errs = append(errs, fmt.Errorf("follow the journals: %w", l.err))
	}
	entries, err := readJournals(l.dir)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = entries
	for _, id := range l.refusals {
		if e := entries[id]; e != nil && id != "" {
			errs = append(errs, fmt.Errorf("%s was refused, and is journaled: %+v", id, e))
		}
	}
	return errors.Join(append(errs, err, balanced(entries, whole))...)
}

func readJournals(dir string) (map[string]*entry, error) {
	entries := map[string]*entry{}
	_, err := usage.Read(dir, func(r *usagev1.Record) error {
		note(entries, r)
		return nil
	})
	return entries, err
}

// balanced says which admissions do not add up. whole: every admission must have its usage.
func balanced(entries map[string]*entry, whole bool) error {
	var errs []error
	for id, e := range entries {
		switch {
		case len(e.admitted) > 1 || len(e.usage) > 1:
			errs = append(errs, fmt.Errorf("admission %s is journaled %d times as admitted and %d times as used", id, len(e.admitted), len(e.usage)))
		case len(e.admitted) == 0 && len(e.usage) > 0:
			errs = append(errs, fmt.Errorf("usage of %s, which was never admitted", id))
		case whole && len(e.admitted) == 0:
			errs = append(errs, fmt.Errorf("%s was served without an admission", id))
		case whole && len(e.usage) == 0:
			errs = append(errs, fmt.Errorf("admission %s has no usage record", id))
		}
		if len(errs) > 10 {
			break
		}
	}
	return errors.Join(errs...)
}
