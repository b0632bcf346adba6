package usage

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

const rejectedPrefix = "rejected/"

// RejectedSource is the source of what a door refuses.
func RejectedSource(door string) string { return rejectedPrefix + "door/" + door }

// OutsideBalance tells whether a source journals refusals: nobody else tells of them, so there is nothing to balance.
func OutsideBalance(source string) bool { return strings.HasPrefix(source, rejectedPrefix) }

// Alike is what refusals have in common that one record may stand for: names of the policy and words of the door, nothing that
// a client wrote.
type Alike struct {
	Code, Limit, Reason                    string // as in usagev1.Rejection
	Status                                 uint32
	Key, Team, Model, AskedModel, Endpoint string // empty: unknown
	Revision                               uint64
}

// Refusal is a door's no to one request.
type Refusal struct {
	Alike
	Admission, Operation, ClientRequestID string
	At                                    time.Time
}

// In each second the first refusalsSingly of those that are alike get a record each, and the others one together. Of what is
// not alike so many kinds are told apart; the rest is, by its code alone, in one record each. Codes are a few fixed words.
const (
	refusalsSingly = 3
	refusalKinds   = 256
)

// RefusalsConfig says where refusals are journaled.
type RefusalsConfig struct {
	Journal interface{ Append(*usagev1.Record) } // a [Spool] of its own, so that a flood takes no room from other records
	// Source and Epoch are the journal's, for ids.
	Source string
	Epoch  uint64
	Spoke  string
}

// Refusals journals what a door refuses: under a flood no more than about a thousand records a second, whose counts add up to
// all of it. It never blocks: what its journal has no room for, the journal counts as lost. Its methods are safe for concurrent
// use. Somebody has to call Run, and Close at the end.
type Refusals struct {
	cfg RefusalsConfig

	mu     sync.Mutex // held for a few instructions
	began  time.Time  // of the second that folds are of
	folds  []*fold
	byKind map[Alike]*fold
	number uint64 // of the last record
}

// fold is what was refused of one kind in one second.
type fold struct {
	of     Alike
	singly int     // records that were written singly
	count  uint64  // refusals beyond them
	last   Refusal // of those
}

// NewRefusals makes an empty one.
func NewRefusals(cfg RefusalsConfig) *Refusals {
	return &Refusals{cfg: cfg, byKind: map[Alike]*fold{}}
}

// Refuse journals one, or counts it for the record of its second.
func (f *Refusals) Refuse(r Refusal) {
	f.mu.Lock()
	out := f.turn(r.At)
	if k := f.kind(r.Alike); k.singly < refusalsSingly {
		k.singly++
		out = append(out, f.record(r.Alike, &r, 1))
	} else {
		k.count++
		k.last = r
	}
	f.mu.Unlock()
	f.append(out)
}

// kind finds the fold that a refusal belongs to: of one kind too many, that of its code.
func (f *Refusals) kind(a Alike) *fold {
	k := f.byKind[a]
	if k != nil {
		return k
	}
	k = &fold{of: a}
	if len(f.byKind) >= refusalKinds {
		k = &fold{of: Alike{Code: a.Code, Status: a.Status}, singly: refusalsSingly}
		if rest := f.byKind[k.of]; rest != nil {
			rest.singly = refusalsSingly
			return rest
		}
	}
	f.byKind[k.of] = k
	f.folds = append(f.folds, k)
	return k
}

// turn ends the second if it is over, and gives its records. A clock that was set back ends it too.
func (f *Refusals) turn(now time.Time) []*usagev1.Record {
	if d := now.Sub(f.began); d >= 0 && d < time.Second {
		return nil
	}
	f.began = now
	return f.end()
}

// end gives the records of what was folded.
func (f *Refusals) end() (out []*usagev1.Record) {
	for _, k := range f.folds {
		switch k.count {
		case 0:
		case 1: // alone after all
			out = append(out, f.record(k.last.Alike, &k.last, 1))
		default:
			out = append(out, f.record(k.of, &Refusal{At: k.last.At}, k.count))
		}
	}
	clear(f.folds)
	f.folds = f.folds[:0]
	clear(f.byKind)
	return out
}

func (f *Refusals) record(a Alike, r *Refusal, count uint64) *usagev1.Record {
	f.number++
	out := &usagev1.Record{
		Id:   KindRejected + "/" + f.cfg.Source + "/" + strconv.FormatUint(f.cfg.Epoch, 10) + "/" + strconv.FormatUint(f.number, 10),
		Kind: KindRejected, Spoke: f.cfg.Spoke, Admission: r.Admission, Operation: r.Operation, ClientRequestId: r.ClientRequestID,
		Key: a.Key, Team: a.Team, Model: a.Model, Endpoint: a.Endpoint, Revision: a.Revision, EndedAt: timestamppb.New(r.At),
		Rejection: &usagev1.Rejection{Code: a.Code, Limit: a.Limit, Reason: a.Reason, Count: count},
	}
	if a.AskedModel != "" {
		out.AskedModel = &a.AskedModel
	}
	if a.Status > 0 {
		out.Status = proto.Uint32(a.Status)
	}
	return out
}

func (f *Refusals) append(records []*usagev1.Record) {
	for _, r := range records {
		f.cfg.Journal.Append(r)
	}
}

// Run writes the records of each second when it is over, also where nothing more is refused, until ctx is done. It returns nil.
func (f *Refusals) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.mu.Lock()
			out := f.turn(time.Now())
			f.mu.Unlock()
			f.append(out)
		case <-ctx.Done():
			return nil
		}
	}
}

// Close writes what was folded. The journal should be closed after.
func (f *Refusals) Close() {
	f.mu.Lock()
	out := f.end()
	f.mu.Unlock()
	f.append(out)
}

// Prune removes a source's oldest segments until all together take at most so many bytes, but for the newest one. It is for a
// journal that nobody ships, and that may forget.
func Prune(dir, source string, most int64) error {
	folder, err := folderOf(source)
	if err != nil {
		return err
	}
	list, err := segments(filepath.Join(dir, folder))
	if err != nil {
		return err
	}
	var total int64
	for _, s := range list {
		total += s.size
	}
	for i := 0; i < len(list)-1 && total > most; i++ {
		if err := os.Remove(list[i].path); err != nil {
			return err
		}
		total -= list[i].size
	}
	return nil
}
