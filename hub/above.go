package hub

import (
	"context"
	"fmt"
)

// maxAbove bounds a number that is given by hand, so that there are always more.
const maxAbove = 1 << 53

// ContinueAbove makes a revision that changes nothing and whose number is above n: the way forward after the database was restored
// from an old copy, while doors hold later revisions and refuse whatever has no higher number. The numbers between are never
// given. Where the latest is above n already it makes none, and answers it.
func (h *Hub) ContinueAbove(ctx context.Context, who Actor, n uint64) (Revision, error) {
	switch {
	case who.Role != RoleAdmin:
		return Revision{}, &Forbidden{"this wants an admin"}
	case n == 0 || n > maxAbove:
		return Revision{}, invalid("above", "want a revision's number, up to %d", uint64(maxAbove))
	}
	c := Commit{Actor: who, Message: fmt.Sprintf("numbers continue above %d", n)}
	out, err := h.commit(ctx, c, operation{name: "continue above", content: n, above: n, changes: func(*work) ([]change, error) { return nil, nil }})
	return out.revision, err
}
