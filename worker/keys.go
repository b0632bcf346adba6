package worker

import (
	"crypto/ed25519"
	"errors"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// contextLife is how long a context can be valid after its door is gone.
const contextLife = identity.Life + identity.Skew

// trust is what a key ring tells; an identity.Verifier.
type trust interface {
	SetKey(door string, k ed25519.PublicKey)
	RemoveKey(door string)
}

// keys holds a door's key while one of its streams lives, and as long after as a context of it can.
type keys struct {
	verifier trust
	life     time.Duration

	mu   sync.Mutex
	held map[string]*heldKey
}

type heldKey struct {
	streams int
	timer   *time.Timer // runs when no stream lives
}

func newKeys(v trust, life time.Duration) *keys {
	return &keys{verifier: v, life: life, held: map[string]*heldKey{}}
}

// hold trusts a door for one stream more. A new key for a known door takes the place of the old one.
func (k *keys) hold(door string, key []byte) error {
	if door == "" || len(key) != ed25519.PublicKeySize {
		return errors.New("the door's welcome has no name, or no Ed25519 key")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[door]
	if h == nil {
		h = &heldKey{}
		k.held[door] = h
	}
	h.streams++
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	k.verifier.SetKey(door, ed25519.PublicKey(key))
	return nil
}

// release ends one stream of a door.
func (k *keys) release(door string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[door]
	if h.streams--; h.streams == 0 {
		h.timer = time.AfterFunc(k.life, func() { k.expire(door, h) })
	}
}

func (k *keys) expire(door string, h *heldKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[door] == h && h.streams == 0 {
		delete(k.held, door)
		k.verifier.RemoveKey(door)
	}
}

// close forgets the timers.
func (k *keys) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.held {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
}
