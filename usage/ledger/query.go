package ledger

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/sqldb"
)

// Query asks for sums.
type Query struct {
	From, To time.Time           // hours at or after the one, and before the other; zero: no bound
	Where    map[string][]string // by team, key, model or label.NAME: one of these values
	Group    []string            // team, key, model, hour, day, month, label.NAME
	Limit    int                 // rows at most
	After    []string            // the group, and currency, of the row before; nil: from the first one
}

// Row is the sum of a group in one currency.
type Row struct {
	Group    []string // values, in the order of Query.Group
	Currency string   // empty: of models that have no price
	Amounts
}

const (
	defaultLimit = 1000
	maxLimit     = 10_000
)

// labelName is what a policy takes for one, so that it can stand in SQL.
var labelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)

// ParseQuery reads the parameters of GET /v1/ledger. An error tells the caller what is wrong.
func ParseQuery(v url.Values) (q Query, err error) {
	q = Query{Where: map[string][]string{}, Limit: defaultLimit}
	for name, values := range v {
		switch name {
		case "team", "key", "model":
			q.Where[name] = values
		case "format":
			err = oneOf(name, values, "json", "csv")
		case "from":
			q.From, err = hourParameter(name, values)
		case "to":
			q.To, err = hourParameter(name, values)
		case "group":
			q.Group, err = groupParameter(values)
		case "limit":
			q.Limit, err = strconv.Atoi(values[0])
			if err != nil || q.Limit < 1 || q.Limit > maxLimit {
				err = fmt.Errorf("limit %q: want a number from 1 to %d", values[0], maxLimit)
			}
		case "after":
			q.After, err = decodeAfter(values[0])
		default:
			if !isLabel(name) {
				err = fmt.Errorf("there is no parameter %q: want team, key, model, label.NAME, from, to, group, limit, after or format", name)
			}
			q.Where[name] = values
		}
		if err != nil {
			return q, err
		}
	}
	switch {
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return q, fmt.Errorf("from %s is not before to %s", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	case q.After != nil && len(q.After) != len(q.Group)+1:
		return q, fmt.Errorf("after: it is of an answer with another group")
	}
	return q, nil
}

func isLabel(name string) bool {
	label, is := strings.CutPrefix(name, "label.")
	return is && labelName.MatchString(label)
}

func oneOf(name string, values []string, want ...string) error {
	if len(values) == 1 && slices.Contains(want, values[0]) {
		return nil
	}
	return fmt.Errorf("%s %q: want %s", name, strings.Join(values, " "), strings.Join(want, " or "))
}

func hourParameter(name string, values []string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02T15", "2006-01"} {
		t, err := time.Parse(layout, values[0])
		if err != nil || len(values) > 1 {
			continue
		}
		if t = t.UTC(); t != t.Truncate(time.Hour) || t.Unix() < 0 {
			return t, fmt.Errorf("%s %q: sums are by the hour (UTC); want the beginning of one, since 1970", name, values[0])
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s %q: want one time, such as 2026-01, 2026-01-31, 2026-01-31T15 or 2026-01-31T15:00:00Z", name, strings.Join(values, " "))
}

func groupParameter(values []string) (group []string, err error) {
	for _, g := range strings.Split(strings.Join(values, ","), ",") {
		switch {
		case slices.Contains([]string{"team", "key", "model", "hour", "day", "month"}, g), isLabel(g):
		default:
			return nil, fmt.Errorf("group %q: want some of team, key, model, hour, day, month and label.NAME, comma-separated", g)
		}
		if slices.Contains(group, g) {
			return nil, fmt.Errorf("group %q is there twice", g)
		}
		group = append(group, g)
	}
	if len(group) > 8 {
		return nil, fmt.Errorf("group: %d are too many, want 8 at most", len(group))
	}
	return group, nil
}

func (r Row) after() string {
	b, _ := json.Marshal(append(slices.Clone(r.Group), r.Currency)) // texts cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeAfter(s string) (list []string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil || list == nil {
		return nil, fmt.Errorf("after %q: want what an answer has in next", s)
	}
	for _, s := range list {
		if strings.ContainsRune(s, 0) {
			return nil, fmt.Errorf("after: a text with a zero byte")
		}
	}
	return list, nil
}

// expression is what SQL calls a name of a group or of a condition.
func (k *kind) expression(name string) string {
	switch name {
	case "team", "model":
		return name
	case "key":
		return "key_id"
	case "hour", "day", "month":
		return k.clock[name]
	}
	return k.label(strings.TrimPrefix(name, "label."))
}

// sql is the query in SQL, with its parameters, for one row more than the limit.
func (q *Query) sql(k *kind) (string, []any) {
	var where []string
	var args []any
	if !q.From.IsZero() {
		where, args = append(where, "hour >= ?"), append(args, q.From.Unix())
	}
	if !q.To.IsZero() {
		where, args = append(where, "hour < ?"), append(args, q.To.Unix())
	}
	for _, name := range slices.Sorted(maps.Keys(q.Where)) {
		where = append(where, k.expression(name)+" IN "+sqldb.Many(1, len(q.Where[name])))
		for _, v := range q.Where[name] {
			args = append(args, v)
		}
	}
	groups := make([]string, 0, len(q.Group)+1)
	numbers := make([]string, 0, len(q.Group)+1)
	for _, g := range append(slices.Clone(q.Group), "currency") {
		e := "currency"
		if g != "currency" {
			e = k.expression(g)
		}
		groups = append(groups, e)
		numbers = append(numbers, strconv.Itoa(len(groups)))
	}
	if q.After != nil {
		where = append(where, "("+strings.Join(groups, ", ")+") > "+sqldb.Many(1, len(groups)))
		for _, v := range q.After {
			args = append(args, v)
		}
	}
	text := "SELECT " + strings.Join(groups, ", ")
	for _, c := range amountNames {
		text += ", CAST(sum(" + c + ") AS BIGINT)"
	}
	text += " FROM totals JOIN dims ON dims.dim = totals.dim"
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	by := strings.Join(numbers, ", ")
	return text + " GROUP BY " + by + " ORDER BY " + by + " LIMIT ?", append(args, q.Limit+1)
}

// Sums answers a query. next is the Query.After of what did not fit; empty: there is nothing more.
func (l *Ledger) Sums(ctx context.Context, q Query) (rows []Row, next string, err error) {
	text, args := q.sql(l.db.kind)
	err = l.db.view(ctx, func(tx *tx) error {
		return tx.Each(func(scan func(...any) error) error {
			r := Row{Group: make([]string, len(q.Group))}
			var to []any
			for i := range r.Group {
				to = append(to, &r.Group[i])
			}
			to = append(append(to, &r.Currency), r.pointers()...)
			if err := scan(to...); err != nil {
				return err
			}
			rows = append(rows, r)
			return nil
		}, text, args...)
	})
	if err == nil && len(rows) > q.Limit {
		rows = rows[:q.Limit]
		next = rows[len(rows)-1].after()
	}
	return rows, next, err
}
