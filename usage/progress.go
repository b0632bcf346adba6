package usage

import (
	"context"
	"sync"
	"time"
)

// ShipStatus says how shipping is. Records count since Run began, bytes as they are on disk.
type ShipStatus struct {
	Shipped     uint64    // acknowledged by Kafka; a record that was sent again counts again
	Aside       uint64    // lines put aside in aside.jsonl: look into them
	LagBytes    int64     // of the journal that are not acknowledged yet
	LastSuccess time.Time // when Kafka last acknowledged something; zero: not yet
	Err         string    // why shipping fails now; empty: it does not
	Since       time.Time // since when it does
}

// Status says how shipping is.
func (f *Forwarder) Status() ShipStatus {
	f.progress.mu.Lock()
	defer f.progress.mu.Unlock()
	return f.progress.status
}

// progress is what the goroutines of a forwarder, and those who ask, know together.
type progress struct {
	mu     sync.Mutex
	status ShipStatus
	acked  position // up to here all is settled
	read   position // up to here all has been read
	// Passes over the journal: how many were begun, and the last one that found nothing more.
	begun, ended uint64
	changed      chan struct{} // closed when acked or ended changes
}

func (p *progress) start(at position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked, p.read = at, at
}

func (p *progress) position() position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

// begin returns the number of a new pass.
func (p *progress) begin() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	return p.begun
}

func (p *progress) nothingMore(pass uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = pass
	p.tell()
}

func (p *progress) readTo(at position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = at
}

func (p *progress) acknowledge(at position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked = at
	p.tell()
}

func (p *progress) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// drained waits until a pass that begins later finds nothing more, and all before is settled.
func (p *progress) drained(ctx context.Context) error {
	p.mu.Lock()
	after := p.begun
	p.mu.Unlock()
	for {
		p.mu.Lock()
		done, changed := p.ended > after && p.acked == p.read, p.changed
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lagIn is how many bytes of the segments are not settled. An unfinished line of a dead process counts for nothing.
func (p *progress) lagIn(list []segment) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.acked == p.read && p.ended > 0 && p.begun-p.ended <= 1 {
		return 0 // the last whole pass has found nothing more
	}
	var lag int64
	for _, s := range list {
		switch order := p.acked.compare(s); {
		case order == 0:
			lag += max(s.size-p.acked.Offset, 0)
		case order < 0:
			lag += s.size
		}
	}
	return lag
}

// setLag returns the one before.
func (p *progress) setLag(lag int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.status.LagBytes
	p.status.LagBytes = lag
	return before
}

func (p *progress) lag() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.LagBytes
}

func (p *progress) shipped() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.Shipped
}

func (p *progress) delivered(n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Shipped += uint64(n)
	p.status.LastSuccess = now
}

func (p *progress) setAside() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Aside++
}

// failing returns since when it does.
func (p *progress) failing(err error, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Err == "" {
		p.status.Since = now
	}
	p.status.Err = err.Error()
	return p.status.Since
}

// recovered returns since when it had failed; zero: it had not.
func (p *progress) recovered() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.status.Since
	p.status.Err, p.status.Since = "", time.Time{}
	return since
}
