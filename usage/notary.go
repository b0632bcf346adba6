package usage

import (
	"crypto/ed25519"
	"log/slog"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// notary makes the checkpoints of a spool. Only the writing goroutine uses it.
type notary struct {
	every time.Duration
	tick  *time.Ticker // wakes the writer when there is nothing to write
	key   ed25519.PrivateKey
	last  time.Time // of the last checkpoint
	done  uint64    // sequence up to which the last one speaks
	old   []segment // what was on disk at the start
}

// newNotary also tells the log by which key this source signs.
func newNotary(dir, source string, every time.Duration, old []segment, log *slog.Logger) *notary {
	key, err := signKey(dir)
	if err != nil {
		log.Error("the key that signs checkpoints cannot be kept; another one signs until the next start", "source", source, "err", err)
	}
	n := &notary{every: every, tick: time.NewTicker(every), key: key, last: time.Now(), old: old}
	c := usagev1.Checkpoint{}
	signCheckpoint(source, &c, key)
	log.Info("the usage journal signs checkpoints", "source", source, "key", Fingerprint(c.PublicKey))
	return n
}

// wake comes when a checkpoint is due. A nil notary has none.
func (n *notary) wake() <-chan time.Time {
	if n == nil {
		return nil
	}
	return n.tick.C
}

func (n *notary) due(now time.Time) bool { return n != nil && now.Sub(n.last) >= n.every }

// checkpoint journals one about all that this epoch has on disk, or will have with it. One that finds no room on the disk is left out: the next
// one speaks of its records too.
func (s *Spool) checkpoint(now time.Time, closing bool) {
	n, w := s.notary, s.writer
	n.last = now
	if w.next == 1 {
		return // nothing to speak of
	}
	c := &usagev1.Checkpoint{Epoch: w.epoch, Sequence: w.next - 1, Count: w.next - 1 - n.done, Digest: w.last.String(), Closing: closing}
	if s.notarize(c, now) {
		n.done = c.Sequence
	}
}

// notarize signs c and puts it into the batch.
func (s *Spool) notarize(c *usagev1.Checkpoint, now time.Time) bool {
	signCheckpoint(s.writer.source, c, s.notary.key)
	return s.writer.add(&s.batch, checkpointRecord(s.writer.source, c, timestamppb.New(now))) == ""
}

// closeEpochBefore journals, at the beginning of an epoch, the last checkpoint of the epoch before where its process did not
// live to write it: of what is on disk.
func (s *Spool) closeEpochBefore(now time.Time) {
	end, err := endOfLastEpoch(s.notary.old, s.writer.source)
	if n := len(s.notary.old); n > 0 && err == nil { // a process that was killed may have written it and not synced
		err = syncFile(s.notary.old[n-1].path)
	}
	s.notary.old = nil
	if err != nil {
		s.opts.Log.Error("the end of the journal's last epoch cannot be read; no checkpoint closes it", "source", s.writer.source, "err", err)
		return
	}
	if end.sequence == 0 || end.closed {
		return
	}
	c := &usagev1.Checkpoint{Epoch: end.epoch, Sequence: end.sequence, Count: end.sequence - max(end.covered, end.first-1), Digest: end.digest.String(), Closing: true}
	if s.notarize(c, now) {
		s.commit()
	}
}

// sealEpoch tries once to journal the last checkpoint: where the disk does not take it, the next start will see to it.
func (s *Spool) sealEpoch(now time.Time) {
	s.notary.tick.Stop()
	if s.stopped() {
		return
	}
	s.checkpoint(now, true)
	if s.batch.n > 0 && s.writer.commit(&s.batch) == nil {
		s.metrics.records.WithLabelValues(KindCheckpoint).Inc()
	}
}

// syncFile brings to disk what others have written to a file.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
