package hub

import (
	"context"

	"github.com/spokegate/spokegate/hub/store"
	"github.com/spokegate/spokegate/identity"
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
// so already, it stays as it is. What is refused stays refused, unless Revive says otherwise.
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
			var err error
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
			if raw, err = w.stillRefused(kind, e.Name, raw, i.Revive); err != nil {
				return nil, err
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

// stillRefused is what a file says of a thing, with what is refused already: the file may be from before that, and an import is no
// pardon. A key that is revoked, or was when it was deleted, stays so, under whichever id; an expiry of which the file says nothing
// stays; and so do an issuer's revoked subjects. To revive is to take the file's word.
func (w *work) stillRefused(kind Kind, name string, raw []byte, revive bool) ([]byte, error) {
	if kind != KindKey && (kind != KindIssuer || revive) {
		return raw, nil
	}
	last, known, err := w.tx.LastBody(string(kind), name)
	if err != nil {
		return nil, err
	}
	file, err := readBody(raw)
	if err != nil {
		return raw, nil // where it is read, it is told
	}
	is := body{}
	if known {
		if is, err = readBody(last.Body); err != nil {
			return nil, err
		}
	}
	if _, says := file["revoked"]; revive {
		if is.yes("revoked") && !says {
			file.set("revoked", false)
		}
		return file.raw(), nil
	}
	if kind == KindIssuer {
		if keepRevokedSubjects(file, is) != nil {
			return raw, nil // as above
		}
		return file.raw(), nil
	}
	hash, err := identity.ParseHash(file.text("sha256"))
	if err != nil {
		return raw, nil // as above
	}
	now := w.state.snap.Key(hash) // under this id, or another
	if now != nil && now.Revoked || is.yes("revoked") && is.text("sha256") == hash.String() {
		file.set("revoked", true)
	}
	if _, says := file["expires"]; !says && now != nil && now.ID == name && is["expires"] != nil {
		file["expires"] = is["expires"]
	}
	return file.raw(), nil
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
