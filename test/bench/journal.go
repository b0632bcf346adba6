package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

const (
	journalSource = "door/bench"
	journalFolder = "door_bench"
	journaled     = 100_000 // records of a round
	synced        = 200     // of those that are waited for one by one
	writeSize     = 1 << 20 // of what is written and fsynced plainly: the most that the spool does at once
)

// journal measures the spool, checkpoints and digests included, beside a file on the same disk to which the same bytes are
// written: many records with no wait between them, and one record after the other, each waited for until it is on disk.
func journal(ctx context.Context, o options) ([]figure, error) {
	dir, err := os.MkdirTemp(o.dir, "sgjournal")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var rates, plain, p99s, plain99 []float64
	for round := range o.rounds {
		r := journalRound{ctx: ctx, dir: filepath.Join(dir, fmt.Sprint(round))}
		if err := r.run(); err != nil {
			return nil, err
		}
		progress("usage.journal: %.0f records/s, plainly %.0f; p99 of one %.2f ms, plainly %.2f", r.rate, r.plainRate, r.p99, r.plain99)
		rates, plain, p99s, plain99 = append(rates, r.rate), append(plain, r.plainRate), append(p99s, r.p99), append(plain99, r.plain99)
	}
	const note = "plain write+fsync of the same bytes"
	return []figure{
		compared("usage.journal", "records/s", note+", 1 MiB each", rates, plain),
		compared("usage.journal_p99", "ms", note+", a record each", p99s, plain99),
	}, nil
}

// journalRound is both sides of one round, each with files of its own under dir.
type journalRound struct {
	ctx             context.Context
	dir             string
	rate, plainRate float64 // records a second
	p99, plain99    float64 // ms
}

func (r *journalRound) run() error {
	s, err := usage.Open(r.dir, journalSource, usage.Options{Queue: 2 * journaled, Checkpoint: time.Minute})
	if err != nil {
		return err
	}
	defer s.Close(r.ctx)
	if r.rate, err = r.many(s); err != nil {
		return err
	}
	lines, err := written(r.dir)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.dir, "plain"))
	if err != nil {
		return err
	}
	defer f.Close()
	start := time.Now()
	for rest := lines; len(rest) > 0; {
		n := min(len(rest), writeSize)
		if err := toDisk(f, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	r.plainRate = journaled / time.Since(start).Seconds()
	return r.single(s, f, lines[:len(lines)/journaled])
}

// many journals records as fast as it can.
func (r *journalRound) many(s *usage.Spool) (rate float64, err error) {
	records := make([]*usagev1.Record, journaled)
	for i := range records {
		records[i] = typicalRecord(i)
	}
	start := time.Now()
	for _, record := range records {
		s.Append(record)
	}
	err = s.Flush(r.ctx)
	took := time.Since(start)
	if st := s.Stats(); err == nil && st.Synced != journaled {
		err = fmt.Errorf("%d records on disk, want %d: %+v", st.Synced, journaled, st)
	}
	return journaled / took.Seconds(), err
}

// single journals one record and writes one line, in turns.
func (r *journalRound) single(s *usage.Spool, f *os.File, line []byte) error {
	var ours, plain []time.Duration
	for i := range synced {
		record := typicalRecord(i)
		start := time.Now()
		s.Append(record)
		if err := s.Flush(r.ctx); err != nil {
			return err
		}
		ours = append(ours, time.Since(start))
		start = time.Now()
		if err := toDisk(f, line); err != nil {
			return err
		}
		plain = append(plain, time.Since(start))
	}
	r.p99, r.plain99 = percentile(ours, 99), percentile(plain, 99)
	return nil
}

func toDisk(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// written is what the journal has on disk.
func written(dir string) (all []byte, err error) {
	segments, err := filepath.Glob(filepath.Join(dir, journalFolder, "*.log"))
	for _, path := range segments {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, err
}

// typicalRecord is of a request as in life; teams are few, so that records spread over partitions.
func typicalRecord(i int) *usagev1.Record {
	id, now := fmt.Sprintf("5b1f6c0e-8f7e-4b53-9d2a-%012d", i), timestamppb.Now()
	return &usagev1.Record{
		Id: usage.UsageID(id), Kind: usage.KindUsage, Admission: id, Key: "alice-laptop", Team: fmt.Sprint("team-", i%17), Model: "sim-large",
		Endpoint: "large", Spoke: "local", Worker: "127.0.0.1:40123", Revision: 12, Operation: "chat", Attempt: 1, Stream: true,
		PromptTokens: proto.Int64(83000), CachedTokens: proto.Int64(79000), CompletionTokens: proto.Int64(412),
		CountedFrom: usage.CountedEngine, Outcome: usage.OutcomeComplete, Status: proto.Uint32(200),
		RequestBytes: proto.Int64(330_000), ResponseBytes: proto.Int64(91_000), AdmittedAt: now, FirstByteAt: now, EndedAt: now,
	}
}
