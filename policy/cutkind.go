package policy

import "crypto/sha256"

// KindDigest is of the content of one kind alone; all zeros: there is none. A cut that is nil has nothing.
func (c *Cut) KindDigest(kind string) (digest [sha256.Size]byte) {
	if c != nil && c.part(kind) != nil {
		return c.part(kind).digest
	}
	return digest
}

// DiffKind is Diff of one kind alone. A cut that is nil has nothing.
func (c *Cut) DiffKind(kind string, to *Cut) (changed []Resource, removed []Ref) {
	if c == nil {
		c = &Cut{}
	}
	return c.diff(to, kind)
}
