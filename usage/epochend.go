package usage

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spokegate/spokegate/openai"
)

// epochEnd is the last record of an epoch that is on disk.
type epochEnd struct {
	epoch, sequence uint64 // sequence 0: there is none, or the epoch keeps no chain
	digest          Digest
	first           uint64 // the first one that is there: those before may have been shipped and removed
	covered         uint64 // up to where the last checkpoint speaks
	closed          bool   // it is the checkpoint that closes the epoch
}

// endOfLastEpoch looks through the segments of the last epoch in the list of a source's. What is damaged is passed over. It
// parses as little as it can: there may be a gigabyte of it, and the writer has other things to do.
func endOfLastEpoch(list []segment, source string) (epochEnd, error) {
	if len(list) == 0 {
		return epochEnd{}, nil
	}
	end := epochEnd{epoch: list[len(list)-1].epoch}
	for _, s := range slices.Backward(list) {
		if s.epoch != end.epoch || end.closed {
			break
		}
		err := eachLine(s, 0, func(_, _ int64, line []byte) error { end.see(line, source); return nil })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return epochEnd{}, err
		}
	}
	return end, nil
}

// see takes one line, nil where it was too long to be one.
func (e *epochEnd) see(line []byte, source string) {
	body, _, err := checkLine(line)
	if err != nil {
		return
	}
	var sequence uint64
	var chained, ours, checkpoint bool
	openai.Each(body, func(key, v []byte) bool {
		switch string(key) {
		case `"kind"`:
			checkpoint = string(v) == `"`+KindCheckpoint+`"`
		case `"source"`:
			ours = string(v) == `"`+source+`"`
		case `"sequence"`:
			sequence, _ = strconv.ParseUint(string(v), 10, 64)
		case `"previous"`:
			chained = len(v) > 2
			return false
		}
		return true
	})
	if !ours || !chained {
		return
	}
	if checkpoint {
		e.checkpoint(body)
	}
	e.first = min(cmp.Or(e.first, sequence), sequence)
	if sequence >= e.sequence {
		e.sequence, e.digest = sequence, DigestOf(body)
	}
}

func (e *epochEnd) checkpoint(body []byte) {
	r, err := ParseJSON(body)
	if err != nil || r.Checkpoint.GetEpoch() != e.epoch {
		return
	}
	e.covered = max(e.covered, r.Checkpoint.Sequence)
	e.closed = e.closed || r.Checkpoint.Closing
}
