package usage

import "time"

// run is the writing goroutine: take, number, commit, until the queue is closed and empty.
func (s *Spool) run() {
	defer close(s.done)
	defer s.lock.Close()
	if s.notary != nil {
		s.closeEpochBefore(time.Now())
	}
	for {
		t := s.queue.take(s.opts.WriteWindow, s.wake())
		if t.over {
			break
		}
		s.store(t)
	}
	if s.batch.n > 0 {
		s.commit()
	}
	if s.notary != nil {
		s.sealEpoch(time.Now())
	}
	s.writer.close()
	s.metrics.bytes.Sub(float64(s.bytes.Load())) // no longer this process's to watch
}

// wake is when there is something to do though no record comes.
func (s *Spool) wake() <-chan time.Time {
	if s.batch.n > 0 {
		return time.After(s.opts.SyncWindow - time.Since(s.batch.since))
	}
	return s.notary.wake()
}

// store hands records to the system, and brings all to disk when it is time, or when somebody waits for it.
func (s *Spool) store(t taken) {
	s.look()
	if s.batch.n == 0 {
		s.batch.since = time.Now()
	}
	for _, r := range t.records {
		if s.stopped() {
			s.drop(lostDisk, 1)
			continue
		}
		if reason := s.writer.add(&s.batch, r); reason != "" {
			s.drop(reason, 1)
			continue
		}
		if s.batch.full() {
			s.commit()
		}
	}
	now := time.Now()
	if s.notary.due(now) && !s.stopped() {
		s.checkpoint(now, false)
	}
	switch {
	case s.batch.n == 0:
	case t.hurry || now.Sub(s.batch.since) >= s.opts.SyncWindow:
		s.commit()
	case s.writer.write(&s.batch) != nil: // which commit will do again, and tell
		s.commit()
	}
}

// commit tries until the batch is on disk, or until it is told to give up. Then nothing more is written in this epoch, so
// the numbers that are given up leave no gap.
func (s *Spool) commit() {
	wait := s.opts.wait
	for {
		err := s.writer.commit(&s.batch)
		s.report()
		if err == nil {
			break
		}
		s.failing(err)
		if !s.pause(wait) {
			s.drop(lostDisk, s.batch.n-s.batch.own)
			s.batch.reset()
			return
		}
		wait = min(2*wait, s.opts.waitMax)
	}
	s.recovered()
	for kind, n := range s.batch.kinds {
		s.metrics.records.WithLabelValues(kind).Add(float64(n))
	}
	n := s.batch.n - s.batch.own
	s.batch.reset()
	s.synced.Add(uint64(n))
	s.queue.settle(n, 0)
}

func (s *Spool) drop(reason string, n int) {
	s.lose(reason, n)
	s.queue.settle(n, n)
}

func (s *Spool) stopped() bool {
	select {
	case <-s.giveUp:
		return true
	default:
		return false
	}
}

// pause waits before the next attempt; false: there shall be none.
func (s *Spool) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !s.stopped()
	case <-s.giveUp:
		return false
	}
}

// look measures the folder again now and then, and soon when it is full: shipped segments may be gone.
func (s *Spool) look() {
	w, every := s.writer, time.Minute
	if w.total+batchBytes+MaxLine >= w.maxBytes {
		every = s.opts.measure
	}
	if time.Since(s.measured) < every {
		return
	}
	s.measured = time.Now()
	w.measure()
	s.report()
}

// report publishes the bytes on disk.
func (s *Spool) report() {
	now := s.writer.total
	s.metrics.bytes.Add(float64(now - s.bytes.Swap(now)))
}

func (s *Spool) failing(err error) {
	text := err.Error()
	if s.failure.Swap(&text) == nil {
		s.opts.Log.Error("the usage journal cannot be written; records wait, and are counted when lost",
			"source", s.writer.source, "err", err)
	}
}

func (s *Spool) recovered() {
	if s.failure.Swap(nil) != nil {
		s.opts.Log.Info("the usage journal can be written again", "source", s.writer.source, "lost", s.lost.Load())
	}
}
