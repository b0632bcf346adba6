package ledger

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// State is how the records stand that were counted, by the ledger's own look; the proof is reconciliation's.
type State struct {
	At    time.Time  `json:"at"`
	Bill  Bill       `json:"bill"`
	Since *time.Time `json:"since"` // of what Sums has; nil: the beginning
	// Admissions without an end, of the time that is kept.
	Open    int64     `json:"open"`     // admitted less than Overdue ago
	Missing int64     `json:"missing"`  // longer ago
	Overdue int64     `json:"overdue"`  // seconds
	Oldest  []Unended `json:"oldest"`   // of the missing ones, at most 100
	Sums    []Row     `json:"-"`        // since Since, by currency
	Records Told      `json:"records"`  // what reading them was like
	Refused Listed    `json:"refused"`  // what is not counted
	Told    []Tell    `json:"balances"` // of reconciliation, the latest first, at most 20
}

// Unended is an admission whose end nobody told.
type Unended struct {
	Admission string    `json:"admission"`
	At        time.Time `json:"admitted_at"`
	Team      string    `json:"team"`
	Key       string    `json:"key"`
	Model     string    `json:"model"`
}

// Told says how reading stands.
type Told struct {
	Pending int64     `json:"pending"` // see FeedStatus
	Skipped uint64    `json:"skipped"`
	Looked  time.Time `json:"looked"`
	Err     string    `json:"error"` // of the feed or of the database; empty: none
}

// Listed are records that are not counted.
type Listed struct {
	Counts map[string]int64 `json:"counts"` // by reason, since the ledger was made
	Latest []Refusal        `json:"latest"` // at most 20
}

// Tell is one record of reconciliation.
type Tell struct {
	At   time.Time       `json:"at"`
	Body json.RawMessage `json:"record"`
}

const (
	oldestListed = 100
	latestListed = 20
)

// State looks at what was counted since a time, and at admissions that are open longer than overdue.
func (l *Ledger) State(ctx context.Context, since time.Time, overdue time.Duration) (s State, err error) {
	now := l.cfg.Now().UTC()
	s = State{At: now, Bill: l.cfg.Bill, Overdue: int64(overdue / time.Second), Oldest: []Unended{}, Told: []Tell{},
		Refused: Listed{Counts: map[string]int64{}, Latest: []Refusal{}}}
	if !since.IsZero() {
		s.Since = &since
	}
	st := l.Status()
	s.Records = Told{st.Feed.Pending, st.Feed.Skipped, st.Feed.Looked.UTC(), st.Feed.Err}
	if st.Err != "" {
		s.Records.Err = st.Err
	}
	if s.Sums, _, err = l.Sums(ctx, Query{From: since, Limit: maxLimit}); err != nil {
		return s, err
	}
	return s, l.db.view(ctx, func(tx *tx) error {
		return firstError(
			func() error { return tx.missing(now.Add(-overdue).Unix(), &s) },
			func() error { return tx.refusals(&s.Refused) },
			func() error { return tx.tells(&s.Told) },
		)
	})
}

func (t *tx) missing(before int64, s *State) error {
	err := t.Row(`SELECT count(*) FROM admissions WHERE open_at IS NOT NULL AND open_at < ?`, before).Scan(&s.Missing)
	if err != nil {
		return err
	}
	if err := t.Row(`SELECT count(*) FROM admissions WHERE open_at IS NOT NULL AND open_at >= ?`, before).Scan(&s.Open); err != nil {
		return err
	}
	return t.Each(func(scan func(...any) error) error {
		var o Unended
		var state []byte
		if err := scan(&o.Admission, &state); err != nil {
			return err
		}
		e, err := decodeEntry(state)
		if err != nil {
			return err
		}
		a := e.admitted
		o.At, o.Team, o.Key, o.Model = a.GetAdmittedAt().AsTime(), a.GetTeam(), a.GetKey(), a.GetModel()
		s.Oldest = append(s.Oldest, o)
		return nil
	}, `SELECT admission, state FROM admissions WHERE open_at IS NOT NULL AND open_at < ? ORDER BY open_at LIMIT ?`, before, oldestListed)
}

func (t *tx) refusals(l *Listed) error {
	err := t.Each(func(scan func(...any) error) error {
		var name, value string
		if err := scan(&name, &value); err != nil {
			return err
		}
		reason, is := strings.CutPrefix(name, metaRefused)
		if !is {
			return nil
		}
		n, err := strconv.ParseInt(value, 10, 64)
		l.Counts[reason] = n
		return err
	}, `SELECT name, value FROM meta`)
	if err != nil {
		return err
	}
	return t.Each(func(scan func(...any) error) error {
		var r Refusal
		var at int64
		err := scan(&at, &r.Reason, &r.ID, &r.Origin, &r.What)
		r.At = time.Unix(0, at).UTC()
		l.Latest = append(l.Latest, r)
		return err
	}, `SELECT at, reason, id, origin, what FROM refused ORDER BY at DESC LIMIT ?`, latestListed)
}

// tells are the latest words of reconciliation.
func (t *tx) tells(list *[]Tell) error {
	return t.Each(func(scan func(...any) error) error {
		var at int64
		var body string
		if err := scan(&at, &body); err != nil {
			return err
		}
		*list = append(*list, Tell{time.Unix(at, 0).UTC(), json.RawMessage(body)})
		return nil
	}, `SELECT at, body FROM balances ORDER BY at DESC, digest LIMIT ?`, latestListed)
}
