package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"
)

// answerMost is how long an engine may take to answer, or to go on.
const answerMost = 20 * time.Second

// errAnother says that the engine is not the one whose events were taken.
var errAnother = errors.New("the engine started again")

// catchUp asks the engine for what was published and not taken. The last batch taken is asked for again: if it is not what it
// was, or is there no more, the engine is another one, or too far ahead.
func (f *feed) catchUp(ctx context.Context) error {
	if f.replay.network == "" {
		return nil
	}
	err := f.ask(ctx)
	if errors.Is(err, errAnother) {
		f.metrics.restarts.Inc()
		f.forget("the engine started again")
		err = f.ask(ctx)
	}
	if err != nil {
		f.metrics.replays.WithLabelValues("failed").Inc()
		return fmt.Errorf("replay from %s: %w", f.replay, err)
	}
	f.metrics.replays.WithLabelValues("done").Inc()
	return nil
}

func (f *feed) ask(ctx context.Context) error {
	conn, err := dial(ctx, f.replay)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	z, err := newZMTP(conn, "DEALER", "ROUTER")
	if err != nil {
		return err
	}
	from := uint64(0)
	if f.known {
		from = f.last
	}
	if err := z.send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	sure := !f.known // that it is the engine of before, or does not matter
	for first := true; ; first = false {
		frames, err := z.receive(answerMost)
		if err != nil {
			return err
		}
		sequence, payload, err := answer(frames)
		if err != nil {
			return err
		}
		switch {
		case payload == nil && !sure:
			return errAnother
		case payload == nil:
			return nil
		case !sure && sequence == f.last && xxh3.Hash(payload) != f.print:
			return errAnother
		case first && !f.known && sequence > 0:
			f.log.Warn("the engine's first events are not kept any more: blocks of then are not known", "first", sequence)
		}
		sure = true
		f.take(sequence, payload)
	}
}

// end is the sequence after the last answer.
const end = ^uint64(0)

// answer reads an answer in either framing, which differ in their first frames; at the end there is no payload.
func answer(frames [][]byte) (sequence uint64, payload []byte, err error) {
	n := len(frames)
	if n < 3 || n > 4 || len(frames[n-2]) != 8 {
		return 0, nil, fmt.Errorf("an answer of %d frames", n)
	}
	if sequence = binary.BigEndian.Uint64(frames[n-2]); sequence == end {
		return 0, nil, nil
	}
	return sequence, frames[n-1], nil
}
