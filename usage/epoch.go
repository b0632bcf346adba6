package usage

import (
	"fmt"
	"slices"
)

// epochLog judges the sequence numbers of one epoch as they are read: pure, and bounded but for the list of gaps.
type epochLog struct {
	first, next uint64 // next 0: nothing seen
	records     uint64
	sums        []uint32 // ring of the check sums of the last batchRecords numbers
	missing     []span   // numbers passed over so far, in order
}

// span is a run of numbers, both ends included.
type span struct{ from, to uint64 }

// verdict on one record.
type verdict uint8

const (
	fresh    verdict = iota // not seen before
	repeated                // seen, with the same content
	clashing                // seen, with another content, or too long ago to tell
)

// see judges the record with this number and check sum. A writer that retried repeats at most one batch.
func (e *epochLog) see(seq uint64, sum uint32) verdict {
	switch {
	case e.next == 0:
		e.first, e.next = seq, seq
		e.sums = make([]uint32, batchRecords)
	case seq >= e.next:
	case e.fill(seq):
		return e.keep(seq, sum)
	case seq >= e.first && e.next-seq <= batchRecords && e.sums[seq%batchRecords] == sum:
		return repeated
	default:
		return clashing
	}
	if seq > e.next {
		e.missing = append(e.missing, span{e.next, seq - 1})
	}
	e.next = seq + 1
	return e.keep(seq, sum)
}

func (e *epochLog) keep(seq uint64, sum uint32) verdict {
	e.sums[seq%batchRecords] = sum
	e.records++
	return fresh
}

// fill takes seq out of the missing numbers, if it is one.
func (e *epochLog) fill(seq uint64) bool {
	for i, m := range e.missing {
		if seq < m.from || seq > m.to {
			continue
		}
		var rest []span
		if m.from < seq {
			rest = append(rest, span{m.from, seq - 1})
		}
		if seq < m.to {
			rest = append(rest, span{seq + 1, m.to})
		}
		e.missing = slices.Replace(e.missing, i, i+1, rest...)
		return true
	}
	return false
}

func (s span) String() string {
	if s.from == s.to {
		return fmt.Sprintf("sequence %d is missing", s.from)
	}
	return fmt.Sprintf("sequences %d to %d are missing", s.from, s.to)
}
