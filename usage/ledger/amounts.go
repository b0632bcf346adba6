package ledger

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// Amounts are what some requests add up to, by the constants below.
type Amounts [amountCount]int64

// What is added up. Tokens are those that are billed, and of these the known ones.
const (
	Requests      = iota // that have ended
	Repaired             // of these, told by a repair and not by the door
	Cut                  // the client left, or the worker broke off
	Failed               // the worker answered with an error
	NotServed            // no worker took it
	UnknownTokens        // prompt or completion tokens are unknown
	UnknownCost          // they are, or the cost is too large, and the model has a price
	Unserved             // complete, and no worker told of it (yet)
	Differing            // door and worker counted differently
	Prompt               // tokens, those from the cache included
	Cached
	Completion // tokens, those of reasoning included
	Reasoning
	Undelivered // completion tokens that were made, and that the client did not get
	Cost        // micro-units of the row's currency
	amountCount
)

// amountNames are those of columns, in the database and in answers.
var amountNames = [amountCount]string{
	"requests", "repaired", "cut", "failed", "not_served", "unknown_tokens", "unknown_cost", "unserved", "differing",
	"prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "undelivered_tokens", "cost",
}

// errOverflow: a sum left the range of its column.
var errOverflow = errors.New("a sum is more than 64 bits hold: some record has an impossible amount")

// add adds times b, which is 1 or -1.
func (a *Amounts) add(b *Amounts, times int64) error {
	for i, n := range b {
		sum := a[i] + times*n
		if n != 0 && (sum > a[i]) != (times*n > 0) {
			return errOverflow
		}
		a[i] = sum
	}
	return nil
}

// bucket is the row that an amount belongs to.
type bucket struct {
	hour                               int64 // its beginning, Unix seconds
	team, key, model, labels, currency string
}

// Bill says whose count is billed.
type Bill string

const (
	// Generated bills what the worker made where its record says it, else what the door counted.
	Generated Bill = "generated"
	// Delivered bills what the door counted: what went to the client.
	Delivered Bill = "delivered"
)

// amounts is what the entry adds, and where. false: nothing yet.
//
// What an entry adds is taken out again by the same function, when more is known. So it must never be changed for entries
// that are in somebody's database.
func (e *entry) amounts(bill Bill) (b bucket, a Amounts, adds bool) {
	u := e.usage
	if u == nil {
		return b, a, false
	}
	price := u.Price
	if price == nil {
		price = e.admitted.GetPrice()
	}
	b = bucket{hourOf(u), u.Team, u.Key, u.Model, labelText(u.Labels), price.GetCurrency()}
	a[Requests] = 1
	a[Repaired] = one(repaired(u))
	a[Cut] = one(u.Outcome == usage.OutcomeClientCut || u.Outcome == usage.OutcomeUpstreamCut)
	a[Failed] = one(u.Outcome == usage.OutcomeUpstreamError)
	a[NotServed] = one(u.Outcome == usage.OutcomeNotServed)
	a[Unserved] = one(u.Outcome == usage.OutcomeComplete && e.served == nil)
	t := billed(u, e.served, bill)
	a[Prompt], a[Cached], a[Completion], a[Reasoning] = value(t.prompt), value(t.cached), value(t.completion), value(t.reasoning)
	if e.served != nil {
		a[Differing] = one(differ(u.PromptTokens, e.served.PromptTokens) || differ(u.CompletionTokens, e.served.CompletionTokens))
		if u.CompletionTokens != nil {
			a[Undelivered] = max(0, e.served.GetCompletionTokens()-*u.CompletionTokens)
		}
	}
	if nothing := u.Outcome == usage.OutcomeNotServed && !slices.Contains(u.Anomalies, unwitnessed); nothing && e.served == nil {
		return b, a, true // known: there is nothing to bill
	}
	a[UnknownTokens] = one(t.prompt == nil || t.completion == nil)
	if price != nil {
		cost := usage.Cost(price, t.prompt, t.cached, t.completion)
		if cost != nil && (*cost > maxCost || *cost < 0) {
			cost = nil
		}
		a[UnknownCost], a[Cost] = one(cost == nil), value(cost)
	}
	return b, a, true
}

// tokens of one request; nil: unknown.
type tokens struct{ prompt, cached, completion, reasoning *int64 }

func billed(u, served *usagev1.Record, bill Bill) tokens {
	t := tokens{u.PromptTokens, u.CachedTokens, u.CompletionTokens, u.ReasoningTokens}
	if bill == Delivered || served == nil {
		return t
	}
	if served.PromptTokens != nil { // the parts of a count belong to it
		t.prompt, t.cached = served.PromptTokens, served.CachedTokens
	}
	if served.CompletionTokens != nil {
		t.completion, t.reasoning = served.CompletionTokens, served.ReasoningTokens
	}
	return t
}

func differ(a, b *int64) bool { return a != nil && b != nil && *a != *b }

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Beyond these a record is not believed, so that sums stay far from 64 bits.
const (
	maxTokens = 1 << 40
	maxCost   = 1 << 50
)

const hour = 3600

// hourOf is when a request counts: when it ended, or, as far as anybody knows, was admitted.
func hourOf(u *usagev1.Record) int64 {
	at := timeOf(u)
	return at - at%hour
}

// timeOf is the latest that a record speaks of, in Unix seconds; math.MinInt64: it says no time.
func timeOf(r *usagev1.Record) int64 {
	for _, t := range []*timestamppb.Timestamp{r.EndedAt, r.AdmittedAt} {
		if t != nil {
			return t.Seconds
		}
	}
	return math.MinInt64
}

// labelText is the one way in which labels are written: as JSON, sorted by name; empty: there are none.
func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	b, _ := json.Marshal(labels) // sorts; texts cannot fail
	return string(b)
}
