package policy

import "slices"

// With is the cut with the resources of some kinds taken from another cut, which costs next to nothing. The revision is c's,
// with the digest of what came out.
func (c *Cut) With(o *Cut, kinds ...string) *Cut {
	out := &Cut{revision: c.revision, parts: c.parts}
	for _, kind := range kinds {
		if i := slices.Index(Kinds, kind); i >= 0 {
			out.parts[i] = o.parts[i]
		}
	}
	return out.Next(c.revision, nil, nil)
}
