package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spokegate/spokegate/sqldb"
)

// place is the key of a row of totals.
type place struct{ hour, dim int64 }

// columns are those of amounts, as SQL lists them.
var columns = strings.Join(amountNames[:], ", ")

// sum adds to the totals what the batch's admissions add more than before.
func (b *batch) sum() error {
	changes := map[bucket]*Amounts{}
	at := func(k bucket) *Amounts {
		if changes[k] == nil {
			changes[k] = new(Amounts)
		}
		return changes[k]
	}
	for _, h := range b.entries {
		if !h.changed {
			continue
		}
		if h.added {
			if err := at(h.was).add(&h.had, -1); err != nil {
				return err
			}
		}
		if k, a, adds := h.amounts(b.bill); adds {
			if err := at(k).add(&a, 1); err != nil {
				return err
			}
		}
	}
	maps.DeleteFunc(changes, func(_ bucket, a *Amounts) bool { return *a == Amounts{} })
	dims, err := b.dims(changes)
	if err != nil {
		return err
	}
	rows := map[place]*Amounts{}
	for k, a := range changes {
		rows[place{k.hour, dims[k.digest()]}] = a
	}
	if err := b.addStored(rows); err != nil {
		return err
	}
	return b.store(rows)
}

// digest names what a bucket is about but for the hour.
func (k bucket) digest() string { return digest(k.team, k.key, k.model, k.labels, k.currency) }

// dims finds the numbers of what the buckets are about, and gives those that are new one.
func (b *batch) dims(changes map[bucket]*Amounts) (map[string]int64, error) {
	about := map[string]bucket{}
	for k := range changes {
		about[k.digest()] = k
	}
	found := map[string]int64{}
	for list := range slices.Chunk(slices.Sorted(maps.Keys(about)), 128) {
		args := make([]any, len(list))
		for i, d := range list {
			args[i] = d
		}
		err := b.tx.Each(func(scan func(...any) error) error {
			var digest string
			var dim int64
			defer func() { found[digest] = dim }()
			return scan(&digest, &dim)
		}, `SELECT digest, dim FROM dims WHERE digest IN `+sqldb.Many(1, len(list)), args...)
		if err != nil {
			return nil, err
		}
	}
	if len(found) == len(about) {
		return found, nil
	}
	var last int64
	if err := b.tx.Row(`SELECT coalesce(max(dim), 0) FROM dims`).Scan(&last); err != nil {
		return nil, err
	}
	for _, d := range slices.Sorted(maps.Keys(about)) {
		if _, is := found[d]; is {
			continue
		}
		last++
		k := about[d]
		err := b.tx.Exec(`INSERT INTO dims (dim, digest, team, key_id, model, labels, currency) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			last, d, k.team, k.key, k.model, k.labels, k.currency)
		if err != nil {
			return nil, err
		}
		found[d] = last
	}
	return found, nil
}

// addStored adds to each row what the database has in it. Sums are made here and not in SQL: SQLite would go on in floating
// point where 64 bits end.
func (b *batch) addStored(rows map[place]*Amounts) error {
	for list := range slices.Chunk(sortedPlaces(rows), 128) {
		for part := range byHour(list) {
			args := []any{part[0].hour}
			for _, p := range part {
				args = append(args, p.dim)
			}
			err := b.tx.Each(func(scan func(...any) error) error {
				p := place{hour: part[0].hour}
				var stored Amounts
				if err := scan(append([]any{&p.dim}, stored.pointers()...)...); err != nil {
					return err
				}
				if err := rows[p].add(&stored, 1); err != nil {
					return fmt.Errorf("hour %d, dim %d: %w", p.hour, p.dim, err)
				}
				return nil
			}, `SELECT dim, `+columns+` FROM totals WHERE hour = ? AND dim IN `+sqldb.Many(1, len(part)), args...)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func sortedPlaces(rows map[place]*Amounts) []place {
	return slices.SortedFunc(maps.Keys(rows), func(a, b place) int { return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.dim, b.dim)) })
}

// byHour cuts a sorted list where the hour changes.
func byHour(list []place) func(yield func([]place) bool) {
	return func(yield func([]place) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && list[n].hour == list[0].hour {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// store writes rows as they are now. One in which nothing is left goes.
func (b *batch) store(rows map[place]*Amounts) error {
	var full []place
	for _, p := range sortedPlaces(rows) {
		if *rows[p] != (Amounts{}) {
			full = append(full, p)
		} else if err := b.tx.Exec(`DELETE FROM totals WHERE hour = ? AND dim = ?`, p.hour, p.dim); err != nil {
			return err
		}
	}
	for list := range slices.Chunk(full, 64) {
		args := make([]any, 0, len(list)*(2+int(amountCount)))
		for _, p := range list {
			args = append(args, p.hour, p.dim)
			for _, n := range rows[p] {
				args = append(args, n)
			}
		}
		if err := b.tx.Exec(storeRows(len(list)), args...); err != nil {
			return err
		}
	}
	return nil
}

func storeRows(n int) string {
	sets := make([]string, amountCount)
	for i, name := range amountNames {
		sets[i] = name + " = excluded." + name
	}
	return `INSERT INTO totals (hour, dim, ` + columns + `) VALUES ` + sqldb.Many(n, 2+int(amountCount)) +
		` ON CONFLICT (hour, dim) DO UPDATE SET ` + strings.Join(sets, ", ")
}

// pointers are where a row's amounts are scanned to.
func (a *Amounts) pointers() []any {
	list := make([]any, len(a))
	for i := range a {
		list[i] = &a[i]
	}
	return list
}
