package epp

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/prompt/text"
)

// shape is what of a profile shapes the text of prompts, and the renderer made of it. The workers of an endpoint should have
// one and the same; where they do not, that of most is the endpoint's.
type shape struct {
	sum  digest // of the profile: names it
	text *text.Model
	err  error // why there is none
}

// digest names a profile by its content.
type digest [sha256.Size]byte

func digestOf(p *workerv1.Profile) (digest, error) {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	return sha256.Sum256(wire), err
}

// differs is how a worker stands whose shape is not the endpoint's.
var differs = degraded(causeProfile, "profile differs: the tokenizer or chat template of more of the endpoint's workers is another")

// shape is that of a profile. To make one takes as long as the worker's template makes it take: nobody waits for it but this
// worker.
func (t *texts) shape(endpoint string, p *workerv1.Profile) *shape {
	own := proto.CloneOf(p)
	own.Mode, own.Reason, own.BlockSize, own.TellsRoots, own.Adapters = 0, "", 0, false, nil
	named, err := digestOf(own)
	if err != nil {
		return &shape{err: err}
	}
	if s := t.known(endpoint, named); s != nil {
		return s
	}
	s := &shape{sum: named}
	s.text, s.err = text.New(own)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried[endpoint] = s
	return s
}

// known finds a shape that was made already: one in use, or the last one.
func (t *texts) known(endpoint string, named digest) *shape {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.tried[endpoint]; s != nil && s.sum == named {
		return s
	}
	for _, k := range t.workers {
		if k.vote != nil && k.worker.Endpoint == endpoint && k.vote.sum == named {
			return k.vote
		}
	}
	return nil
}

// elect makes the shape that most of an endpoint's workers tell the endpoint's, and gathers their adapters. Where as many tell
// another, the one of before stays. Followers are told to begin anew when it is another.
func (t *texts) elect(endpoint string) {
	before := t.elected[endpoint]
	votes, now := map[digest]int{}, before
	adapters := map[string]bool{}
	for _, k := range t.workers {
		if k.worker.Endpoint != endpoint {
			continue
		}
		for _, name := range k.adapters {
			adapters[name] = true
		}
		if k.vote == nil {
			continue
		}
		votes[k.vote.sum]++
		if now == nil || votes[k.vote.sum] > votes[now.sum] {
			now = k.vote
		}
	}
	if before != nil && now != before && votes[now.sum] == votes[before.sum] {
		now = before // it was behind only while they were counted
	}
	t.adapters[endpoint] = adapters
	if len(adapters) == 0 {
		delete(t.adapters, endpoint)
	}
	if now == nil || votes[now.sum] == 0 {
		delete(t.elected, endpoint)
		return
	}
	t.elected[endpoint] = now
	if before == nil || before.sum == now.sum {
		return
	}
	t.log.Warn("the endpoint's prompts are rendered by another profile: more of its workers tell it", "endpoint", endpoint)
	for _, k := range t.workers {
		if k.worker.Endpoint == endpoint && k.vote != nil && k.vote.sum == before.sum && k.standing == indexed {
			t.set(k, differs)
		}
	}
	if c := t.turned[endpoint]; c != nil {
		close(c)
		delete(t.turned, endpoint)
	}
}

// turn is closed when another profile is the endpoint's.
func (t *texts) turn(endpoint string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turned[endpoint] == nil {
		t.turned[endpoint] = make(chan struct{})
	}
	return t.turned[endpoint]
}

// adapter says that some worker of the endpoint has an adapter of this name.
func (t *texts) adapter(endpoint, name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.adapters[endpoint][name]
}
