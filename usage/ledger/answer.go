package ledger

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// answer is the JSON of GET /v1/ledger.
type answer struct {
	Bill  Bill              `json:"bill"`
	From  *time.Time        `json:"from"`
	To    *time.Time        `json:"to"`
	Group []string          `json:"group"`
	Rows  []json.RawMessage `json:"rows"`
	Next  *string           `json:"next"` // the parameter after of what follows; null: this is all
}

func writeJSON(w http.ResponseWriter, bill Bill, q Query, rows []Row, next string) error {
	a := answer{Bill: bill, Group: append([]string{}, q.Group...), Rows: jsonRows(q.Group, rows)}
	if !q.From.IsZero() {
		a.From = &q.From
	}
	if !q.To.IsZero() {
		a.To = &q.To
	}
	if next != "" {
		a.Next = &next
	}
	return json.NewEncoder(w).Encode(a)
}

// jsonRows are objects with the names of the group first, in its order.
func jsonRows(group []string, rows []Row) []json.RawMessage {
	list := make([]json.RawMessage, 0, len(rows))
	for _, r := range rows {
		b := []byte{'{'}
		for i, g := range group {
			b = append(member(b, g), quoted(r.Group[i])...)
			b = append(b, ',')
		}
		b = member(b, "currency")
		if r.Currency == "" {
			b = append(b, "null"...)
		} else {
			b = append(b, quoted(r.Currency)...)
		}
		for i, n := range r.Amounts {
			b = append(b, ',')
			b = member(b, amountNames[i])
			if i == Cost && r.Currency == "" {
				b = append(b, "null"...)
				continue
			}
			b = strconv.AppendInt(b, n, 10)
		}
		list = append(list, append(b, '}'))
	}
	return list
}

func member(b []byte, name string) []byte { return append(append(b, quoted(name)...), ':') }

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a text cannot fail
	return b
}

// writeCSV writes a row of names, and the rows. There is no place for next: its header tells.
func writeCSV(w http.ResponseWriter, q Query, rows []Row, next string) error {
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="ledger.csv"`)
	if next != "" {
		w.Header().Set("X-Next-After", next)
	}
	out := csv.NewWriter(w)
	_ = out.Write(append(append(append([]string{}, q.Group...), "currency"), amountNames[:]...)) // Flush tells
	for _, r := range rows {
		var cells []string
		for _, g := range append(append([]string{}, r.Group...), r.Currency) {
			cells = append(cells, usage.PlainCell(g))
		}
		for i, n := range r.Amounts {
			if i == Cost && r.Currency == "" {
				cells = append(cells, "")
				continue
			}
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return nil // the caller has left
}
