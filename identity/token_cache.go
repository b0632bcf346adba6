package identity

import (
	"crypto/sha256"
	"sync"
)

// tokenCache remembers tokens by their SHA-256. It is bounded: when one generation is full, the one before it is forgotten. What
// is asked for moves into the younger one, so a token in use stays.
type tokenCache struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]verified
}

// maxRemembered is how many tokens one generation has.
const maxRemembered = 4096

func (c *tokenCache) get(sum [sha256.Size]byte) (verified, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.young[sum]; ok {
		return v, true
	}
	v, ok := c.old[sum]
	if ok {
		c.add(sum, v)
	}
	return v, ok
}

func (c *tokenCache) put(sum [sha256.Size]byte, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(sum, v)
}

func (c *tokenCache) add(sum [sha256.Size]byte, v verified) {
	if len(c.young) >= maxRemembered || c.young == nil {
		c.old, c.young = c.young, make(map[[sha256.Size]byte]verified)
	}
	c.young[sum] = v
}
