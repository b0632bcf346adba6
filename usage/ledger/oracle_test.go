package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// oracle says what must come out, slowly, from all records at once: it holds them in memory and knows no database.
func oracle(list []*usagev1.Record, bill Bill) map[string]Amounts {
	byID := map[string]*usagev1.Record{}
	for _, r := range list {
		if before := byID[r.Id]; before == nil || usage.Wins(r, before) {
			byID[r.Id] = r
		}
	}
	out := map[string]Amounts{}
	for _, u := range byID {
		if u.Kind != usage.KindUsage {
			continue
		}
		var served []*usagev1.Record
		for _, r := range byID {
			if r.Kind == usage.KindServed && r.Admission == u.Admission && strings.HasSuffix(r.Id, "/main") {
				served = append(served, r)
			}
		}
		key, a := judge(u, byID[usage.AdmittedID(u.Admission)], served, bill)
		sum := out[key]
		for i := range a {
			sum[i] += a[i]
		}
		out[key] = sum
	}
	return out
}

func judge(u, admitted *usagev1.Record, served []*usagev1.Record, bill Bill) (key string, a Amounts) {
	price := u.Price
	if price == nil && admitted != nil {
		price = admitted.Price
	}
	key = strings.Join([]string{u.EndedAt.AsTime().UTC().Format("2006-01-02T15:00:00Z"), u.Team, u.Key, u.Model, u.Labels["cost"], u.Labels["a/b.c"], price.GetCurrency()}, "|")
	a[Requests] = 1
	if slices.Contains(u.Anomalies, usage.Repaired) {
		a[Repaired] = 1
	}
	switch u.Outcome {
	case usage.OutcomeClientCut, usage.OutcomeUpstreamCut:
		a[Cut] = 1
	case usage.OutcomeUpstreamError:
		a[Failed] = 1
	case usage.OutcomeNotServed:
		a[NotServed] = 1
	case usage.OutcomeComplete:
		if len(served) == 0 {
			a[Unserved] = 1
		}
	}
	prompt, cached, completion, reasoning := u.PromptTokens, u.CachedTokens, u.CompletionTokens, u.ReasoningTokens
	if len(served) > 0 {
		slices.SortFunc(served, func(x, y *usagev1.Record) int {
			n := func(r *usagev1.Record) string {
				return fmt.Sprintf("%t %10d %5d", r.Outcome == usage.OutcomeComplete, r.GetCompletionTokens(), r.Attempt)
			}
			return cmp.Compare(n(y), n(x)) // "true" is behind "false"
		})
		s := served[0]
		if x, y := u.CompletionTokens, s.CompletionTokens; x != nil && y != nil {
			if *y > *x {
				a[Undelivered] = *y - *x
			}
			if *y != *x {
				a[Differing] = 1
			}
		}
		if x, y := u.PromptTokens, s.PromptTokens; x != nil && y != nil && *x != *y {
			a[Differing] = 1
		}
		if bill == Generated && s.PromptTokens != nil {
			prompt, cached = s.PromptTokens, s.CachedTokens
		}
		if bill == Generated && s.CompletionTokens != nil {
			completion, reasoning = s.CompletionTokens, s.ReasoningTokens
		}
	}
	for i, n := range map[int]*int64{Prompt: prompt, Cached: cached, Completion: completion, Reasoning: reasoning} {
		if n != nil {
			a[i] = *n
		}
	}
	if u.Outcome == usage.OutcomeNotServed && len(served) == 0 {
		return key, a
	}
	known := prompt != nil && completion != nil
	if !known {
		a[UnknownTokens] = 1
	}
	if price == nil {
		return key, a
	}
	if !known {
		a[UnknownCost] = 1
		return key, a
	}
	found := int64(0)
	if cached != nil {
		found = min(*cached, *prompt)
	}
	cost := new(big.Rat)
	for n, each := range map[int64]int64{1: (*prompt - found) * price.Input, 2: found * price.Cached, 3: *completion * price.Output} {
		_ = n
		cost.Add(cost, big.NewRat(each, 1_000_000))
	}
	half := new(big.Rat).Add(cost, big.NewRat(1, 2))
	a[Cost] = new(big.Int).Quo(half.Num(), half.Denom()).Int64()
	return key, a
}

// asOracle is what a ledger says, in the oracle's words.
func asOracle(rows []Row) map[string]Amounts {
	out := map[string]Amounts{}
	for _, r := range rows {
		out[strings.Join(append(slices.Clone(r.Group), r.Currency), "|")] = r.Amounts
	}
	return out
}

var oracleGroup = []string{"hour", "team", "key", "model", "label.cost", "label.a/b.c"}

// differences are told by row, at most some.
func oracleDiff(got, want map[string]Amounts) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			list = append(list, fmt.Sprintf("%s: %v, want %v", k, got[k], want[k]))
		}
	}
	for k := range got {
		if _, is := want[k]; !is {
			list = append(list, fmt.Sprintf("%s: %v, want no such row", k, got[k]))
		}
	}
	if len(list) > 5 {
		list = append(list[:5], fmt.Sprintf("and %d more", len(list)-5))
	}
	return strings.Join(list, "\n")
}
