package balance

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// publishPrefix begins the names of sources of published reports.
const publishPrefix = "balance/"

// PublishSource is the source of what name publishes.
func PublishSource(name string) string { return publishPrefix + name }

// Published is the report as records: of each row, of each source in all, and of everything.
func (r *Report) Published() []*usagev1.Record {
	var list []*usagev1.Record
	sums := map[string]*Row{}
	for _, s := range r.Sources {
		sums[s.Source] = &Row{}
	}
	for _, row := range r.Rows {
		b := balanceOf(row)
		b.Hour, b.Of = stamp(row.Hour), row.Source
		list = append(list, r.publish(b, row.Team))
		if sums[row.Source] == nil { // a row of nothing but what is missing
			sums[row.Source] = &Row{}
		}
		sums[row.Source].addAll(row)
	}
	missing := map[string]uint64{}
	for _, s := range r.Sources {
		if !s.WrittenOff {
			missing[s.Source] += s.Missing
		}
	}
	var gaps uint64
	for _, source := range slices.Sorted(maps.Keys(sums)) {
		b := balanceOf(*sums[source])
		b.Of = source
		journal(b, r.bySource[source], missing[source])
		list = append(list, r.publish(b, ""))
		gaps += missing[source]
	}
	all := balanceOf(r.Total)
	journal(all, r.Counts, gaps)
	return append(list, r.publish(all, ""))
}

// publish makes the record of b.
func (r *Report) publish(b *usagev1.Balance, team string) *usagev1.Record {
	if r.From != nil {
		b.From = stamp(*r.From)
	}
	if r.To != nil {
		b.To = stamp(*r.To)
	}
	hour := "all"
	if b.Hour != nil {
		hour = b.Hour.AsTime().Format(time.RFC3339)
	}
	id := publishPrefix + strconv.FormatInt(r.At.UnixMilli(), 10) + "/" + hour + "/" + cmp.Or(b.Of, "all") + "/" + cmp.Or(team, "all")
	return &usagev1.Record{Id: id, Kind: usage.KindBalance, Team: team, EndedAt: stamp(r.At), Balance: b}
}

// balanceOf is what a row says.
func balanceOf(r Row) *usagev1.Balance {
	return &usagev1.Balance{
		Balanced: r.MissingUsage+r.MissingAdmitted+r.MissingServed+r.TokenDifferences+r.Conflicts == 0,
		Admitted: r.Admitted, Usage: r.Usage, Served: r.Served, Open: r.Open,
		MissingUsage: r.MissingUsage, MissingAdmitted: r.MissingAdmitted, MissingServed: r.MissingServed,
		TokenDifferences: r.TokenDifferences, Conflicts: r.Conflicts, Doubled: r.Doubled, Repaired: r.Repaired, Lost: r.Lost,
		PromptTokens: r.PromptTokens, CompletionTokens: r.CompletionTokens, CutTokens: r.CutTokens,
	}
}

// journal adds what is of no hour. counts are of the same source, or of all.
func journal(b *usagev1.Balance, counts map[Kind]uint64, gaps uint64) {
	b.Balanced = failing(counts) == 0
	b.Gaps = gaps
	b.Altered = counts[Altered] + counts[Untrusted]
	b.Damaged = counts[Damaged] + counts[Clash] + counts[OutOfOrder]
	b.EngineDifferences = counts[Engine]
}
