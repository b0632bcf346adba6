package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// maxInFlight is how many requests wait for Kafka at a time, one a partition at most. Each has a connection.
const maxInFlight = 16

// ship returns when all of c is settled, or ctx is done. It gives back a chunk to use again: another one after a failure,
// because a request that was given up may still be reading c.
func (f *Forwarder) ship(ctx context.Context, c *chunk) *chunk {
	next, wait := c, f.cfg.wait
	for {
		before := f.progress.shipped()
		err := f.attempt(ctx, c)
		if err == nil {
			f.recovered()
			f.progress.acknowledge(c.to)
			return next
		}
		if ctx.Err() != nil {
			return next
		}
		next = newChunk(f.cfg.chunkBytes)
		f.broker.reset()
		f.tidied = time.Time{}
		f.tidy(time.Now())
		if !errors.Is(err, errMade) {
			f.failing(err, time.Now())
		}
		if f.progress.shipped() > before {
			wait = f.cfg.wait
		}
		if !sleep(ctx, wait) {
			return next
		}
		wait = min(2*wait, f.cfg.waitMax)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt tries once to settle what is not settled yet.
func (f *Forwarder) attempt(ctx context.Context, c *chunk) error {
	for i := range c.spoilt {
		if err := f.putAside(c, &c.spoilt[i]); err != nil {
			return err
		}
	}
	lanes, err := f.lanes(ctx, c)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(maxInFlight)
	for _, l := range lanes {
		all.Go(func() error { return l.send(ctx) })
	}
	err = all.Wait()
	for _, l := range lanes {
		f.room = min(f.room, l.room)
	}
	f.pace(err)
	return err
}

// pace makes requests smaller when Kafka could not answer in time, so that a slow one gets somewhere, and slowly larger again.
func (f *Forwarder) pace(err error) {
	var late interface{ Timeout() bool }
	if err == nil {
		f.room = min(f.room+f.room/16, f.cfg.requestBytes)
	} else if errors.As(err, &late) && late.Timeout() {
		f.room = max(f.room/2, min(minRequest, f.cfg.requestBytes))
	}
}

// lane is what goes to one partition, in order.
type lane struct {
	f         *Forwarder
	chunk     *chunk
	topic     string
	partition int
	events    []*event
	room      int
}

type laneKey struct {
	topic     string // the end of its name
	partition int
}

// lanes sorts what is not settled by partition: that of the team, as Kafka's own clients would choose it.
func (f *Forwarder) lanes(ctx context.Context, c *chunk) (map[laneKey]*lane, error) {
	byTeam := kafka.Murmur2Balancer{Consistent: true}
	partitions := map[string][]int{}
	lanes := map[laneKey]*lane{}
	for i := range c.events {
		e := &c.events[i]
		if e.settled {
			continue
		}
		if partitions[e.topic] == nil {
			ids, err := f.partitions(ctx, f.cfg.Prefix+e.topic)
			if err != nil {
				return nil, fmt.Errorf("topic %s%s: %w", f.cfg.Prefix, e.topic, err)
			}
			partitions[e.topic] = ids
		}
		key := laneKey{e.topic, byTeam.Balance(kafka.Message{Key: e.key}, partitions[e.topic]...)}
		l := lanes[key]
		if l == nil {
			l = &lane{f: f, chunk: c, topic: f.cfg.Prefix + e.topic, partition: key.partition, room: f.room}
			lanes[key] = l
		}
		l.events = append(l.events, e)
	}
	return lanes, nil
}

func (f *Forwarder) partitions(ctx context.Context, topic string) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()
	n, err := f.broker.partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i
	}
	return ids, nil
}

// send sends the events in requests of at most room bytes, one after the other.
func (l *lane) send(ctx context.Context) error {
	for rest := l.events; len(rest) > 0; {
		n, size := 1, rest[0].size()
		for n < len(rest) && size+rest[n].size() <= l.room {
			size += rest[n].size()
			n++
		}
		if err := l.produce(ctx, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// produce settles the events. Where Kafka refuses them for good, it looks for the ones that are to blame.
func (l *lane) produce(ctx context.Context, events []*event) error {
	asked, cancel := context.WithTimeout(ctx, l.f.cfg.Timeout)
	err := l.f.broker.produce(asked, l.topic, l.partition, events)
	cancel()
	switch half := len(events) / 2; {
	case err == nil:
		l.f.delivered(events)
		return nil
	case !refused(err):
		return fmt.Errorf("topic %s, partition %d: %w", l.topic, l.partition, err)
	case half == 0:
		return l.f.refuse(l.chunk, l.topic, events[0], err)
	default:
		l.room = max(l.room/2, min(minRequest, l.f.cfg.requestBytes)) // not to be refused as often
		if err := l.produce(ctx, events[:half]); err != nil {
			return err
		}
		return l.produce(ctx, events[half:])
	}
}

func (f *Forwarder) delivered(events []*event) {
	kinds := map[string]int{}
	for _, e := range events {
		e.settled = true
		kinds[e.kind]++
	}
	for kind, n := range kinds {
		f.metrics.shipped.WithLabelValues(kind).Add(float64(n))
	}
	now := time.Now()
	f.metrics.success.Set(float64(now.UnixMilli()) / 1000)
	f.progress.delivered(len(events), now)
}

// refuse puts a record aside that Kafka will never take.
func (f *Forwarder) refuse(c *chunk, topic string, e *event, why error) error {
	a := Aside{At: time.Now().UTC(), Reason: why.Error(), Topic: topic, Segment: c.segment, Offset: e.offset}
	if err := f.asides.put(a, e.line); err != nil {
		return fmt.Errorf("a record that Kafka refuses cannot be put aside: %w", err)
	}
	e.settled = true
	f.putDown(asideRefused, a)
	return nil
}

// putAside puts aside what is no record.
func (f *Forwarder) putAside(c *chunk, s *spoilt) error {
	if s.settled {
		return nil
	}
	a := Aside{At: time.Now().UTC(), Reason: s.err.Error(), Segment: c.segment, Offset: s.offset}
	if err := f.asides.put(a, s.line); err != nil {
		return fmt.Errorf("a damaged line cannot be put aside: %w", err)
	}
	s.settled = true
	f.putDown(asideDamaged, a)
	return nil
}

func (f *Forwarder) putDown(reason string, a Aside) {
	f.progress.setAside()
	f.metrics.aside.WithLabelValues(reason).Inc()
	f.log.Error("a line of the usage journal cannot be shipped; it is kept in "+asideFile,
		"reason", a.Reason, "topic", a.Topic, "segment", a.Segment, "offset", a.Offset)
}

func (f *Forwarder) failing(err error, now time.Time) {
	f.metrics.errors.Inc()
	since := f.progress.failing(err, now)
	if now.Sub(f.warned) < time.Minute && since.Before(now) {
		return
	}
	f.warned = now
	f.log.Error("usage records cannot be shipped to Kafka; they stay in the spool, and it is tried again",
		"err", err, "since", since, "lag_bytes", f.progress.lag())
}

func (f *Forwarder) recovered() {
	if since := f.progress.recovered(); !since.IsZero() {
		f.log.Info("usage records are shipped to Kafka again", "failed_for", time.Since(since).Round(time.Millisecond).String())
	}
}
