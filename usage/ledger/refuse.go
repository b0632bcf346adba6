package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// Reasons why a record is not counted.
const (
	unreadable = "unreadable" // it is no record
	impossible = "impossible" // its parts cannot be true
	tooLate    = "too_late"   // its admission is forgotten: see Config.Keep
)

// listed is how many refusals and balances are kept; refusals beyond are still counted.
const listed = 10_000

// refusal is a record that is not counted.
type refusal struct{ digest, reason, id, origin, what string }

// Refusal is one of those that are listed.
type Refusal struct {
	At     time.Time `json:"at"`     // when it was refused
	Reason string    `json:"reason"` // unreadable, impossible or too_late
	ID     string    `json:"id"`     // of the record; empty: it could not be read
	Origin string    `json:"origin"` // source/epoch/sequence, or where it was found
	What   string    `json:"what"`
}

func (b *batch) refusal(it Item, reason, what string) verdict {
	f := refusal{digest(it.Lane, it.Place), reason, "", it.Where, what}
	if r := it.Record; r != nil {
		f.id, f.origin = r.Id, fmt.Sprintf("%s/%d/%d", r.Source, r.Epoch, r.Sequence)
		f.digest = digest(f.id, f.origin)
	}
	b.refused = append(b.refused, f)
	return refused
}

// refuse lists and counts what was refused; what is listed already, once.
func (b *batch) refuse() error {
	more := map[string]int64{}
	for i, f := range b.refused {
		n, err := b.tx.Changed(`INSERT INTO refused (digest, at, reason, id, origin, what) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (digest) DO NOTHING`,
			f.digest, b.now+int64(i), f.reason, clip(f.id), clip(f.origin), clip(f.what))
		if err != nil {
			return err
		}
		more[f.reason] += n
	}
	for reason, n := range more {
		had, err := b.tx.Number(metaRefused + reason)
		if err != nil {
			return err
		}
		if err := b.tx.Set(metaRefused+reason, strconv.FormatInt(had+n, 10)); err != nil {
			return err
		}
	}
	if len(more) == 0 {
		return nil
	}
	return b.tx.Exec(`DELETE FROM refused WHERE at < (SELECT at FROM refused ORDER BY at DESC LIMIT 1 OFFSET ?)`, listed)
}

// clip makes a text one that every database holds, and short.
func clip(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= 500 {
		return s
	}
	return strings.ToValidUTF8(s[:500], "") + "…"
}

// whole tells whether r is the result of a whole reconciliation, or writes a source off; the rows of a result are not kept.
func whole(r *usagev1.Record) bool {
	b := r.Balance
	return r.Kind == usage.KindBalance && (b == nil || b.Hour == nil && b.Of == "" && r.Team == "")
}

// tell keeps what reconciliation has told.
func (b *batch) tell() error {
	for _, r := range b.told {
		body := usage.AppendJSON(nil, r)
		at := timeOf(r)
		if at < 0 {
			at = b.now / int64(time.Second)
		}
		err := b.tx.Exec(`INSERT INTO balances (digest, at, body) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING`,
			digest(r.Id, r.Source, strconv.FormatUint(r.Epoch, 10), strconv.FormatUint(r.Sequence, 10)), at,
			strings.ReplaceAll(string(body), "\x00", ""))
		if err != nil {
			return err
		}
	}
	if len(b.told) == 0 {
		return nil
	}
	return b.tx.Exec(`DELETE FROM balances WHERE at < (SELECT at FROM balances ORDER BY at DESC LIMIT 1 OFFSET ?)`, listed)
}

// forgetRows is how many admissions one transaction forgets.
const forgetRows = 5000

// forget forgets admissions whose last record is older than Keep, and first raises the horizon below which no admission is
// new. Between the two lies a day: the records of one admission are not that far apart, so that none of a forgotten one can
// be above the horizon. all: nothing is left to forget.
func (l *Ledger) forget(ctx context.Context) (all bool, err error) {
	horizon := max(l.horizon, l.cfg.Now().Add(-l.cfg.Keep).Unix()+day)
	var gone int64
	err = l.db.update(ctx, func(tx *tx) error {
		if err := tx.mine(l.writer); err != nil {
			return err
		}
		if err := tx.Set(metaHorizon, strconv.FormatInt(horizon, 10)); err != nil {
			return err
		}
		gone, err = tx.Changed(`DELETE FROM admissions WHERE admission IN (SELECT admission FROM admissions WHERE day < ? LIMIT ?)`,
			horizon/day-1, forgetRows)
		return err
	})
	if err == nil {
		l.horizon = horizon
		l.metrics.forgotten.Add(float64(gone))
	}
	return gone < forgetRows, err
}
