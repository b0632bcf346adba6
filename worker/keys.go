package worker

import (
	"crypto/ed25519"
	"errors"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// contextLife is how long a context can be valid after its door has made its last with a key or a secret, and has said so.
const contextLife = identity.Life + 2*identity.Skew

// trust is what a key ring tells; an identity.Verifier.
type trust interface {
	SetKey(id string, k ed25519.PublicKey)
	RemoveKey(id string)
	SetSecret(s identity.Secret)
	RemoveSecret(id string)
}

// keys holds the keys that a living stream of a door names and the secret that it shares with us, and each as long after as a
// context of it can live.
type keys struct {
	verifier trust
	life     time.Duration

	mu   sync.Mutex
	held map[string]*heldKey // by key id, or secretPrefix and a secret's
}

// secretPrefix keeps the ids of secrets apart from those of keys.
const secretPrefix = "mac "

type heldKey struct {
	streams int
	timer   *time.Timer // runs when no stream names it
	remove  func()      // trusts it no more
}

func newKeys(v trust, life time.Duration) *keys {
	return &keys{verifier: v, life: life, held: map[string]*heldKey{}}
}

// hold trusts a key for one stream more. A new key takes the place of the one that has the same id: its door started anew.
func (k *keys) hold(id string, key []byte) error {
	if id == "" || len(key) != ed25519.PublicKeySize {
		return errors.New("a key of the door's welcome has no id, or is no Ed25519 key")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count(id, func() { k.verifier.RemoveKey(id) })
	k.verifier.SetKey(id, ed25519.PublicKey(key))
	return nil
}

// holdSecret is hold for what a door shares with us; as is what release wants.
func (k *keys) holdSecret(id string, secret []byte) (as string, err error) {
	s, err := identity.SecretOf(id, secret)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count(secretPrefix+id, func() { k.verifier.RemoveSecret(id) })
	k.verifier.SetSecret(s)
	return secretPrefix + id, nil
}

// count adds a stream to those that name a key or a secret.
func (k *keys) count(as string, remove func()) {
	h := k.held[as]
	if h == nil {
		h = &heldKey{remove: remove}
		k.held[as] = h
	}
	h.streams++
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// release ends what one stream held.
func (k *keys) release(ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		h := k.held[id]
		if h.streams--; h.streams == 0 {
			h.timer = time.AfterFunc(k.life, func() { k.expire(id, h) })
		}
	}
}

func (k *keys) expire(id string, h *heldKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[id] == h && h.streams == 0 {
		delete(k.held, id)
		h.remove()
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
