package hub

import (
	"context"

	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/policy"
)

// kindOf is our kind of a policy's.
func kindOf(resource string) Kind {
	for kind, r := range resourceKinds {
		if r == resource {
			return kind
		}
	}
	return ""
}

// Import commits all that a policy file has, and with Replace nothing else but spokes. Where the file says of something what is
// so already, it stays as it is.
func (h *Hub) Import(ctx context.Context, c Commit, i Import) (Revision, error) {
	op, err := importing(c, i)
	if err != nil {
		return Revision{}, err
	}
	out, err := h.commit(ctx, c, op)
	return out.revision, err
}

// importing is the operation that an import is.
func importing(c Commit, i Import) (operation, error) {
	if c.Actor.Role != RoleAdmin {
		return operation{}, &Forbidden{"an import wants an admin"}
	}
	entries, err := policy.Entries(i.File, i.YAML)
	if err != nil {
		return operation{}, problemsOf(err)
	}
	return operation{name: "import", content: i, changes: func(w *work) ([]change, error) {
		var list []change
		if i.Spoke != "" && !w.state.hasSpoke(i.Spoke) {
			list = append(list, change{Change: Change{Kind: KindSpoke, Name: i.Spoke, Body: []byte("{}")}})
		}
		has := map[[2]string]bool{}
		for _, e := range entries {
			kind, raw := kindOf(e.Kind), e.Body
			has[[2]string{string(kind), e.Name}] = true
			if kind == KindEndpoint && i.Spoke != "" {
				b, err := readBody(raw)
				if err != nil {
					return nil, err
				}
				b.set("spoke", i.Spoke)
				raw = b.raw()
			}
			list = append(list, change{Change: Change{Kind: kind, Name: e.Name, Body: raw}})
		}
		if !i.Replace {
			return list, nil
		}
		gone, err := w.others(has)
		return append(list, gone...), err
	}}, nil
}

// others deletes what a file does not have.
func (w *work) others(has map[[2]string]bool) (list []change, err error) {
	for kind := range resourceKinds {
		err := w.tx.Each(string(kind), w.state.head.Number, func(v store.Version) error {
			if !has[[2]string{v.Kind, v.Name}] {
				list = append(list, change{Change: Change{Kind: kind, Name: v.Name}})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
