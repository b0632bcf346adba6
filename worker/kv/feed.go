package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/zeebo/xxh3"
)

const (
	// retryFirst and retryMost are how long a lost connection is waited for before the next try.
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
	// settle is how long after a start, and idleCheck how long after the last message, the engine is asked whether all has come:
	// a publisher drops what its queue or an early subscriber cannot take, and only the next message would show it.
	settle    = time.Second
	idleCheck = 30 * time.Second
	// badFor is how long a payload that cannot be read puts the others in doubt.
	badFor = 10 * time.Second
)

// feed follows the events of one data-parallel rank. Its own goroutine alone touches it.
type feed struct {
	rank    uint32
	fixed   bool     // the rank is what we say; else what the engine says
	events  endpoint // where it publishes
	listens bool     // we are there, and the engine connects
	replay  endpoint // where it is asked for the past; no network: nowhere
	topic   string
	out     *announcer
	metrics *metrics
	standing
	log *slog.Logger

	decoder decoder
	// known says that last is the batch taken last, and print what it was: after a lost connection they show whether the engine
	// is the one of before.
	known bool
	last  uint64
	print uint64
	// live is the last sequence that came by itself on this connection; 0 with none set.
	live    uint64
	hasLive bool
	retry   time.Duration

	badUntil time.Time
}

// standing tells how a feed is: an empty reason says that it follows.
type standing func(reason string)

// run follows until ctx ends.
func (f *feed) run(ctx context.Context) {
	connect, stop := f.connector(ctx)
	defer stop()
	f.retry = retryFirst
	for ctx.Err() == nil {
		conn, err := connect()
		if err == nil {
			err = f.session(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		f.standing(fmt.Sprintf("the engine's events do not come from %s: %v", f.events, err))
		pause(ctx, f.retry)
		f.retry = min(2*f.retry, retryMost)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// session follows one connection to its end.
func (f *feed) session(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	z, err := newZMTP(conn, "SUB", "PUB", "XPUB")
	if err != nil {
		return err
	}
	if err := z.send(append([]byte{1}, f.topic...)); err != nil {
		return err
	}
	f.hasLive = false
	if f.replay.network == "" && f.known {
		f.forget("the connection was lost, and there is no replay to ask what was missed")
	}
	if err := f.catchUp(ctx); err != nil {
		return err
	}
	f.log.Info("KV events are followed", "from", f.events.String(), "replay", f.replay.network != "", "last", f.last, "known", f.known)
	if f.badUntil.IsZero() {
		f.standing("")
	}
	idle := settle
	for {
		frames, err := z.receive(idle)
		switch {
		case errors.Is(err, errIdle):
			idle = idleCheck
			err = f.catchUp(ctx)
		case err == nil:
			f.retry = retryFirst
			err = f.message(ctx, frames)
		}
		if err != nil {
			return err
		}
	}
}

// message takes what the engine published: topic, sequence, payload.
func (f *feed) message(ctx context.Context, frames [][]byte) error {
	if len(frames) != 3 || len(frames[1]) != 8 {
		return fmt.Errorf("a message of %d frames is no KV event", len(frames))
	}
	sequence, payload := binary.BigEndian.Uint64(frames[1]), frames[2]
	switch {
	case f.hasLive && sequence <= f.live: // the engine started again, behind the same connection
		f.metrics.restarts.Inc()
		f.forget("the sequence went back from " + fmt.Sprint(f.live) + " to " + fmt.Sprint(sequence))
		if err := f.catchUp(ctx); err != nil {
			return err
		}
	case f.known && sequence > f.last+1:
		f.metrics.gaps.Inc()
		f.log.Warn("KV events were missed", "from", f.last+1, "to", sequence-1)
		if err := f.catchUp(ctx); err != nil {
			return err
		}
	}
	f.live, f.hasLive = sequence, true
	f.take(sequence, payload)
	return nil
}

// take applies a batch if it is the next one. One that is known already came by replay; one too far ahead means that those
// before it are lost.
func (f *feed) take(sequence uint64, payload []byte) {
	if f.known && sequence <= f.last {
		return
	}
	if f.known && sequence > f.last+1 {
		f.metrics.lost.Inc()
		f.forget(fmt.Sprintf("events %d to %d are lost", f.last+1, sequence-1))
	}
	f.known, f.last, f.print = true, sequence, xxh3.Hash(payload)
	batch, err := f.decoder.decode(payload)
	if err != nil {
		f.metrics.note(skipPayload, 1)
	} else if err = unread(batch); err != nil {
		f.metrics.note(skipEvent, 1)
	}
	if err != nil {
		f.out.clear(f.rank) // what it changed is not known
		f.standing(fmt.Sprintf("the engine's events cannot be read: %v", err))
		f.badUntil = time.Now().Add(badFor)
		return
	}
	if !f.badUntil.IsZero() && time.Now().After(f.badUntil) {
		f.badUntil = time.Time{}
		f.standing("")
	}
	if rank := uint32(max(batch.Rank, 0)); !f.fixed && rank != f.rank {
		f.out.clear(f.rank)
		f.rank = rank
	}
	f.metrics.batch(f.rank, batch, time.Now())
	f.out.apply(f.rank, batch.Events)
}

// unread is why an event of a batch cannot be read; nil: all can. One of a kind that is not known is no reason: what it means,
// nobody knows, and if it changed what the engine holds, the answers will show.
func unread(b *Batch) error {
	for i := range b.Events {
		if why := b.Events[i].Why; why != nil && !errors.Is(why, errKind) {
			return why
		}
	}
	return nil
}

// forget drops what the rank held: what of it still stands cannot be known.
func (f *feed) forget(why string) {
	f.log.Warn("the rank's blocks are forgotten", "reason", why)
	f.known = false
	f.out.clear(f.rank)
}

// connector gives connections to the engine: dialled, or accepted where the engine connects. stop ends it.
func (f *feed) connector(ctx context.Context) (connect func() (net.Conn, error), stop func()) {
	if !f.listens {
		return func() (net.Conn, error) { return dial(ctx, f.events) }, func() {}
	}
	l := &listener{at: f.events}
	return func() (net.Conn, error) { return l.next(ctx) }, l.close
}

func dial(ctx context.Context, e endpoint) (net.Conn, error) {
	d := net.Dialer{Timeout: greetMost}
	return d.DialContext(ctx, e.network, e.address)
}
