package balance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// agreement wants that the records of one admission say the same of what they all know.
func (a *Audit) agreement(hour time.Time, g *group) {
	first := g.admitted
	if first == nil {
		first = g.usage
	}
	if first == nil {
		first = g.served[0]
	}
	for _, r := range g.records() {
		if what := differences(first, r); what != "" {
			a.ledger.tell(hour, about(Disagreement, r, "%s and %s differ in %s", first.Id, r.Id, what))
		}
	}
	if u := g.usage; u != nil {
		a.cost(hour, u)
	}
	if best := g.best(); g.usage != nil && best != nil {
		a.tokens(hour, g.usage, best)
	}
}

// differences names the fields in which two records of one admission differ, and must not.
func differences(x, y *usagev1.Record) string {
	var list []string
	text := func(name, a, b string) {
		if a != b {
			list = append(list, fmt.Sprintf("%s: %q, %q", name, a, b))
		}
	}
	text("key", x.Key, y.Key)
	text("team", x.Team, y.Team)
	text("model", x.Model, y.Model)
	text("asked_model", x.GetAskedModel(), y.GetAskedModel())
	text("endpoint", x.Endpoint, y.Endpoint)
	text("revision", strconv.FormatUint(x.Revision, 10), strconv.FormatUint(y.Revision, 10))
	if original(x) && original(y) { // what the door alone knows
		text("spoke", x.Spoke, y.Spoke)
		text("operation", x.Operation, y.Operation)
		text("client_request_id", x.ClientRequestId, y.ClientRequestId)
		text("stream", strconv.FormatBool(x.Stream), strconv.FormatBool(y.Stream))
		if !proto.Equal(x.Price, y.Price) {
			list = append(list, "price")
		}
		if !proto.Equal(x.AdmittedAt, y.AdmittedAt) {
			list = append(list, "admitted_at")
		}
	}
	return strings.Join(list, "; ")
}

// cost wants that a usage record costs what its price and its tokens make.
func (a *Audit) cost(hour time.Time, u *usagev1.Record) {
	want := usage.Cost(u.Price, u.PromptTokens, u.CachedTokens, u.CompletionTokens)
	if (want == nil) != (u.Cost == nil) || want != nil && *want != *u.Cost {
		a.ledger.tell(hour, about(Cost, u, "its cost is %s, its price and tokens make %s", count(u.Cost), count(want)))
	}
}

// original tells whether the door wrote it.
func original(r *usagev1.Record) bool {
	return r.Kind != usage.KindServed && !slices.Contains(r.Anomalies, usage.Repaired)
}

// Anomalies of a usage record whose door does not know of all that passed.
var cutMeters = []string{usage.Unmetered, "meter_cut"}

// tokens wants door ≤ worker, and equal where neither says that something was cut.
func (a *Audit) tokens(hour time.Time, door, worker *usagev1.Record) {
	row := a.ledger.row(hour, door.Source, door.Team)
	whole := door.Outcome == usage.OutcomeComplete && worker.Outcome == usage.OutcomeComplete &&
		!slices.ContainsFunc(door.Anomalies, func(s string) bool { return slices.Contains(cutMeters, s) })
	var list []string
	for _, t := range []struct {
		name string
		d, w *int64
	}{
		{"prompt", door.PromptTokens, worker.PromptTokens},
		{"cached", door.CachedTokens, worker.CachedTokens},
		{"completion", door.CompletionTokens, worker.CompletionTokens},
		{"reasoning", door.ReasoningTokens, worker.ReasoningTokens},
	} {
		same := (t.d == nil) == (t.w == nil) && (t.d == nil || *t.d == *t.w)
		if t.d != nil && t.w != nil && *t.d > *t.w || whole && !same {
			list = append(list, fmt.Sprintf("%s %s at the door, %s at the worker", t.name, count(t.d), count(t.w)))
		}
	}
	if len(list) > 0 {
		a.ledger.tell(hour, about(Tokens, door, "%s (%s)", strings.Join(list, "; "), worker.Source))
		return
	}
	if less := worker.GetCompletionTokens() - door.GetCompletionTokens(); less > 0 {
		row.Cut++
		row.CutTokens += less
	}
}

// count is a number that may be unknown as text.
func count(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}
