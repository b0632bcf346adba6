package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/spokegate/spokegate/enginemetrics"
)

// What makes a worker worse than it seems, in a word; what follows the colon is for people.
const (
	kvTransfer  = "kv-transfer" // blocks travel slowly, or fail to
	kvMemory    = "memory"      // the KV cache is full
	preemptions = "preemptions" // requests lose their blocks and begin anew
	queueGrowth = "queue"       // more wait than run
	gpuTrouble  = "gpu"         // what the DCGM exporter tells
	hung        = "hung"        // no token comes, though requests wait
	probing     = "probe"       // the last probe was not answered
)

// degradations are all of them, for the metric.
var degradations = []string{gpuTrouble, hung, kvTransfer, kvMemory, preemptions, probing, queueGrowth}

const (
	// pressFor is how long memory and queue must press before it is said: a burst is no trouble.
	pressFor = 30 * time.Second
	// fullAt is the share of KV blocks in use from which on new requests soon wait or throw others out.
	fullAt = 0.95
	// queueLeast is how many must wait at least.
	queueLeast = 4
	// lately is how far back counters are compared, and how long what they told stays told.
	lately = time.Minute
	// A transfer of blocks over RDMA or NVLink moves tens of GB/s, over TCP well below slowRate. Where an engine does not
	// tell bytes, slowTransfer is what one may take. leastBytes must have moved before a rate means anything.
	slowRate     = 2e9
	slowTransfer = 500 * time.Millisecond
	leastBytes   = 16 << 20
)

// reading is what the counters were at a time.
type reading struct {
	at time.Time
	counters
}

// pressure watches an engine's counters for what it does not say by itself. It is told each reading, in order.
type pressure struct {
	causes []string // by the last one

	past     []reading // of lately, and one older
	fullFrom time.Time // zero: it is not full
	longFrom time.Time // zero: the queue is not long
}

// take judges by a new reading, and what was found beside it.
func (p *pressure) take(r reading, causes []string) {
	p.past = append(p.past, r)
	for len(p.past) > 2 && r.at.Sub(p.past[1].at) >= lately {
		p.past = p.past[1:]
	}
	before := p.past[0].counters
	if since(&p.fullFrom, r.Cache != nil && *r.Cache >= fullAt, r.at) >= pressFor {
		causes = append(causes, fmt.Sprintf("%s: %.0f %% of the KV blocks in use for %s", kvMemory, 100**r.Cache, words(r.at.Sub(p.fullFrom))))
	}
	long := r.Waiting != nil && *r.Waiting >= queueLeast && (r.Running == nil || *r.Waiting > *r.Running)
	if since(&p.longFrom, long, r.at) >= pressFor {
		causes = append(causes, fmt.Sprintf("%s: %d wait, %d run, for %s", queueGrowth, *r.Waiting, enginemetrics.Uint32(r.Running), words(r.at.Sub(p.longFrom))))
	}
	if grown := growth(before.Preemptions, r.Preemptions); grown > 0 {
		causes = append(causes, fmt.Sprintf("%s: %d in the last minute", preemptions, grown))
	}
	if failed := r.TransferFailed - before.TransferFailed; failed > 0 {
		causes = append(causes, fmt.Sprintf("%s: %d failed in the last minute", kvTransfer, failed))
	} else if slow := slowTransfers(before, r.counters); slow != "" {
		causes = append(causes, kvTransfer+": "+slow)
	}
	p.causes = causes
}

// since keeps the time from which on something holds, and says for how long it has.
func since(from *time.Time, holds bool, now time.Time) time.Duration {
	switch {
	case !holds:
		*from = time.Time{}
		return 0
	case from.IsZero():
		*from = now
	}
	return now.Sub(*from)
}

func growth(from, to *int64) int64 {
	if from == nil || to == nil {
		return 0
	}
	return max(*to-*from, 0)
}

// slowTransfers says how slow they were; "" if they were not, or there were none.
func slowTransfers(before, now counters) string {
	n, took, moved := now.Transfers-before.Transfers, now.TransferTime-before.TransferTime, now.TransferBytes-before.TransferBytes
	switch {
	case n <= 0 || took <= 0:
		return ""
	case moved >= leastBytes && moved/took < slowRate:
		return fmt.Sprintf("%.2f GB/s", moved/took/1e9)
	case moved <= 0 && took/float64(n) > slowTransfer.Seconds():
		return fmt.Sprintf("%.0f ms a transfer", 1000*took/float64(n))
	}
	return ""
}

// sorted causes, each word once: what the log said first comes first.
func sorted(lists ...[]string) []string {
	var all []string
	seen := map[string]bool{}
	for _, causes := range lists {
		for _, c := range causes {
			if word := wordOf(c); c != "" && !seen[word] {
				seen[word] = true
				all = append(all, c)
			}
		}
	}
	slices.Sort(all)
	return all
}

// wordOf a cause is what is before its colon.
func wordOf(c string) string {
	for i := range len(c) {
		if c[i] == ':' {
			return c[:i]
		}
	}
	return c
}
