package usage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// Link is what of a record says where it stands in its source's chain.
type Link struct {
	Source          string
	Epoch, Sequence uint64
	Digest          Digest // of the record itself
	Previous        Digest // what it says of the record before
	Chained         bool   // it says something
	// Checkpoint that the record is; nil: it is another record.
	Checkpoint *usagev1.Checkpoint
}

// LinkOf returns the link of r. body is its JSON as it was found, and not made anew: another version would write it otherwise.
func LinkOf(r *usagev1.Record, body []byte) (Link, error) {
	l := Link{Source: r.Source, Epoch: r.Epoch, Sequence: r.Sequence, Digest: DigestOf(body), Checkpoint: r.Checkpoint}
	if r.Sequence == 0 {
		return l, fmt.Errorf("record %q has no sequence number", r.Id)
	}
	if l.Chained = r.Previous != ""; !l.Chained {
		return l, nil
	}
	var err error
	l.Previous, err = parseDigest(r.Previous)
	return l, err
}

// Mismatch is a place where records contradict the chain or a checkpoint.
type Mismatch struct {
	Source          string
	Epoch, Sequence uint64
	What            string
}

// Proof says how far an epoch is proved.
type Proof struct {
	Source       string
	Epoch        uint64
	Records      uint64 // that are there
	First, Last  uint64 // sequences of those
	Proven       uint64 // up to here a checkpoint vouches; 0: none does
	Closed       bool   // a checkpoint says that nothing more comes
	Unchained    uint64 // records that say nothing of the one before: of a source that keeps no chain
	Fingerprints []string
}

// Auditor holds records against each other's digests and against checkpoints. It takes the records of all sources in any
// order, each as often as it comes. An altered record is named by the one behind it, which says another digest; where that one
// is altered too, the next one names that, and at the end stands the signature of a checkpoint.
//
// It does not tell numbers that are missing: see [Proof]. Its memory is about 3 bits a record, and 100 bytes for each whose
// neighbour has not come yet.
type Auditor struct {
	tell    func(Mismatch)
	epochs  map[epochKey]*chain
	signers map[string]string // source → key of its first checkpoint
}

type epochKey struct {
	source string
	epoch  uint64
}

// chain is what is known of one epoch.
type chain struct {
	proof Proof
	seen  map[uint64]uint64 // one bit a sequence
	is    map[uint64]Digest // of records about which nobody has said anything yet
	said  map[uint64]Digest // about records that have not come yet
	end   uint64            // sequence behind which there is nothing; 0: unknown
}

// NewAuditor calls tell at each mismatch.
func NewAuditor(tell func(Mismatch)) *Auditor {
	return &Auditor{tell: tell, epochs: map[epochKey]*chain{}, signers: map[string]string{}}
}

func (a *Auditor) chain(source string, epoch uint64) *chain {
	key := epochKey{source, epoch}
	c := a.epochs[key]
	if c == nil {
		c = &chain{proof: Proof{Source: source, Epoch: epoch}, seen: map[uint64]uint64{}, is: map[uint64]Digest{}, said: map[uint64]Digest{}}
		a.epochs[key] = c
	}
	return c
}

// Add takes one record's link.
func (a *Auditor) Add(l Link) {
	c := a.chain(l.Source, l.Epoch)
	if !c.mark(l.Sequence) {
		if d, waits := c.is[l.Sequence]; waits && d != l.Digest {
			a.mismatch(c, l.Sequence, "it is there with two contents")
		}
		return
	}
	p := &c.proof
	p.Records++
	p.First, p.Last = min(cmp.Or(p.First, l.Sequence), l.Sequence), max(p.Last, l.Sequence)
	if !l.Chained {
		p.Unchained++
		return
	}
	if d, is := c.said[l.Sequence]; !is {
		c.is[l.Sequence] = l.Digest
	} else {
		delete(c.said, l.Sequence)
		a.compare(c, l.Sequence, l.Digest, d)
	}
	a.say(c, l.Sequence-1, l.Previous)
	if l.Checkpoint != nil {
		a.checkpoint(l)
	}
}

// mark returns false if the number was there already.
func (c *chain) mark(n uint64) bool {
	word, bit := n/64, uint64(1)<<(n%64)
	if c.seen[word]&bit != 0 {
		return false
	}
	c.seen[word] |= bit
	return true
}

// say takes what is said about record n.
func (a *Auditor) say(c *chain, n uint64, digest Digest) {
	if n == 0 {
		if digest != (Digest{}) {
			a.mismatch(c, 1, "it is the first of its epoch, and names one before")
		}
		return
	}
	if d, is := c.is[n]; is {
		delete(c.is, n)
		a.compare(c, n, d, digest)
	} else if c.seen[n/64]&(1<<(n%64)) == 0 {
		c.said[n] = digest
	}
}

func (a *Auditor) compare(c *chain, n uint64, is, said Digest) {
	if is != said {
		a.mismatch(c, n, "it was altered, or what is said of it: its digest is %.16s…, and another one is named behind it", is)
	}
}

// checkpoint takes one that stands in the chain.
func (a *Auditor) checkpoint(l Link) {
	c := l.Checkpoint
	of := a.chain(l.Source, c.Epoch)
	digest, err := parseDigest(c.Digest)
	if err == nil {
		err = VerifyCheckpoint(l.Source, c)
	}
	own := c.Epoch == l.Epoch
	switch {
	case err != nil:
	case c.Epoch > l.Epoch || own && c.Sequence != l.Sequence-1 || c.Count == 0 || c.Count > c.Sequence:
		err = fmt.Errorf("what it speaks of, %d records up to sequence %d of epoch %d, it cannot know", c.Count, c.Sequence, c.Epoch)
	case own && digest != l.Previous:
		err = fmt.Errorf("it names one digest, and signs another")
	}
	if err != nil {
		a.mismatch(a.chain(l.Source, l.Epoch), l.Sequence, "a checkpoint that proves nothing: %v", err)
		return
	}
	if !own {
		a.say(of, c.Sequence, digest)
	}
	a.signer(of, l, c.PublicKey)
	of.proof.Proven = max(of.proof.Proven, c.Sequence)
	if c.Closing {
		of.proof.Closed = true
		of.end = c.Sequence
		if own {
			of.end = l.Sequence
		}
	}
}

func (a *Auditor) signer(of *chain, l Link, key string) {
	if first := a.signers[l.Source]; first == "" {
		a.signers[l.Source] = key
	} else if first != key {
		a.mismatch(a.chain(l.Source, l.Epoch), l.Sequence, "a checkpoint that another key has signed: %s, and before %s", Fingerprint(key), Fingerprint(first))
	}
	if f := Fingerprint(key); !slices.Contains(of.proof.Fingerprints, f) {
		of.proof.Fingerprints = append(of.proof.Fingerprints, f)
	}
}

func (a *Auditor) mismatch(c *chain, sequence uint64, what string, args ...any) {
	a.tell(Mismatch{c.proof.Source, c.proof.Epoch, sequence, fmt.Sprintf(what, args...)})
}

// Finish tells what only the whole can show, and how far each epoch is proved: in order of sources and epochs.
func (a *Auditor) Finish() []Proof {
	keys := slices.SortedFunc(maps.Keys(a.epochs), func(x, y epochKey) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.epoch, y.epoch))
	})
	var proofs []Proof
	for _, key := range keys {
		c := a.epochs[key]
		p := c.proof
		if c.end > 0 && p.Last > c.end {
			a.mismatch(c, c.end+1, "there are records up to sequence %d behind the checkpoint that closes the epoch", p.Last)
		}
		if p.Unchained > 0 && p.Unchained < p.Records {
			a.mismatch(c, p.First, "%d of its epoch's %d records name none before", p.Unchained, p.Records)
		}
		proofs = append(proofs, p)
	}
	return proofs
}
