package hub

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/store"
)

// planned is a change that has been read, permitted, and changes something.
type planned struct {
	changed
	had store.Version // Body nil: it was not there
}

// plan reads the changes and sorts out those that change nothing.
func (w *work) plan(list []change) ([]planned, error) {
	seen := make(map[[2]string]bool, len(list))
	out := make([]planned, 0, len(list))
	for _, c := range list {
		id := [2]string{string(c.Kind), c.Name}
		if seen[id] {
			return nil, invalid(path(c.Kind, c.Name), "is changed twice in one commit")
		}
		seen[id] = true
		p, err := w.planOne(c)
		if err != nil {
			return nil, err
		}
		if p.had.Body == nil || !bytes.Equal(p.had.Body, p.new.raw) {
			out = append(out, p)
		}
	}
	return w.placeAll(out)
}

func (w *work) planOne(c change) (p planned, err error) {
	p.kind, p.name = c.Kind, c.Name
	if err := plainName(c.Kind, c.Name); err != nil {
		return p, err
	}
	had, there, err := w.tx.Current(string(c.Kind), c.Name)
	if err != nil {
		return p, err
	}
	if !there {
		had.Body = nil
	}
	if err := w.mayChange(c, had); err != nil {
		return p, err
	}
	if err := matches(c.Change, had); err != nil {
		return p, err
	}
	if c.Body == nil && !there {
		return p, fmt.Errorf("%s: %w", path(c.Kind, c.Name), ErrNotFound)
	}
	if p.had = had; there {
		if p.old, err = readStored(had); err != nil {
			return p, err
		}
	} else {
		p.old = &thing{}
	}
	if p.new = (&thing{}); c.Body == nil {
		return p, w.mayDelete(p)
	}
	if p.new, err = readThing(c.Kind, c.Name, c.Body); err != nil {
		return p, err
	}
	switch c.Kind {
	case KindKey:
		err = w.keyRules(p, c.exact)
	case KindEndpoint:
		if d := p.new.endpoint.deployment; d != nil && !slices.Contains(w.hub.templates.Stacks(), d.Stack) {
			return p, invalid(path(p.kind, p.name)+".deployment.stack", "there is no stack %q; there are %s", d.Stack, strings.Join(w.hub.templates.Stacks(), ", "))
		}
		if !c.exact {
			p.keepPlace()
		}
	}
	return p, err
}

// matches checks what the change says the thing must be.
func matches(c Change, had store.Version) error {
	is := had.Since
	if had.Body == nil {
		is = 0
	}
	switch {
	case c.IfRevision == nil || *c.IfRevision == is:
		return nil
	case *c.IfRevision == 0:
		return &Conflict{c.Kind, c.Name, is, fmt.Sprintf("%s is there already, since revision %d", path(c.Kind, c.Name), is)}
	case is == 0:
		return &Conflict{c.Kind, c.Name, is, fmt.Sprintf("%s was changed on the basis of revision %d, and is gone", path(c.Kind, c.Name), *c.IfRevision)}
	}
	return &Conflict{c.Kind, c.Name, is,
		fmt.Sprintf("%s was changed on the basis of revision %d, and has changed in %d", path(c.Kind, c.Name), *c.IfRevision, is)}
}

// mayChange says whether the actor may change a thing.
func (w *work) mayChange(c change, had store.Version) error {
	if w.by.Actor.Role == RoleAdmin {
		return nil
	}
	if c.Kind != KindKey {
		return &Forbidden{fmt.Sprintf("%s: a team owner changes keys only", path(c.Kind, c.Name))}
	}
	if had.Body != nil && !slices.Contains(w.by.Actor.Teams, had.Team) || had.Body == nil && c.Body == nil {
		return &Forbidden{fmt.Sprintf("%s is no key of your teams", path(c.Kind, c.Name))}
	}
	if c.Body != nil {
		if b, err := readBody(c.Body); err == nil && !slices.Contains(w.by.Actor.Teams, b.text("team")) {
			return &Forbidden{fmt.Sprintf("%s.team: want one of your teams: %v", path(c.Kind, c.Name), w.by.Actor.Teams)}
		}
	}
	return nil
}

// mayDelete keeps a team owner from deleting what is revoked: the same secret could be taken over anew.
func (w *work) mayDelete(p planned) error {
	if w.by.Actor.Role == RoleAdmin || p.kind != KindKey {
		return nil
	}
	was, err := readBody(p.had.Body)
	if err == nil && was.yes("revoked") {
		err = &Forbidden{path(p.kind, p.name) + " is revoked; only an admin deletes it, for while it is there nobody can take its secret over"}
	}
	return err
}

// keyRules are what a policy does not know of: how a key may change, and what a team owner may not give to one.
func (w *work) keyRules(p planned, exact bool) error {
	was, is, at := body{}, p.new.body, path(p.kind, p.name)
	if p.had.Body != nil {
		var err error
		if was, err = readBody(p.had.Body); err != nil {
			return err
		}
		if was.text("sha256") != is.text("sha256") {
			return invalid(at+".sha256", "a key's secret never changes, so that its id means one secret in all records: rotate it, or make another")
		}
	}
	switch {
	case w.by.Actor.Role == RoleAdmin:
	case was.yes("revoked") && !is.yes("revoked"):
		return &Forbidden{at + ": a team owner does not bring back a key that was revoked: make another"}
	case !was.yes("explain") && is.yes("explain") && !exact:
		return &Forbidden{at + ".explain: only an admin gives this to a key"}
	}
	if _, says := is["revoked"]; was.yes("revoked") && !says && !exact { // a body from before that is no pardon
		return invalid(at+".revoked", "the key is revoked, and this does not say so: want true, or false to let it work again")
	}
	return nil
}

// keepPlace takes over where an endpoint runs, unless the change says another spoke. What the hub wrote of its choice is the
// hub's alone.
func (p *planned) keepPlace() {
	e, b := p.new.endpoint, p.new.body
	old := p.old.endpoint
	if e.spoke == "" && old != nil {
		e.spoke = old.spoke
		b.set("spoke", e.spoke)
	}
	delete(b, "placed")
	if e.placed = nil; old != nil && old.placed != nil && old.spoke == e.spoke {
		e.placed = old.placed
		b.set("placed", e.placed)
	}
	p.new.raw = b.raw()
}

// placeAll gives a spoke to each endpoint that has none.
func (w *work) placeAll(list []planned) ([]planned, error) {
	var spokes []*candidate
	for i := range list {
		p := &list[i]
		if p.kind != KindEndpoint || p.new.raw == nil || p.new.endpoint.spoke != "" {
			continue
		}
		if spokes == nil {
			var err error
			if spokes, err = w.candidates(list); err != nil {
				return nil, err
			}
		}
		to, reason, fits := place(p.new.endpoint.wants(), spokes)
		if !fits {
			return nil, invalid(path(p.kind, p.name)+".placement", "%s", reason)
		}
		p.new.endpoint.spoke, p.new.endpoint.placed = to.name, &Placed{to.name, reason, w.now.Truncate(time.Second)}
		p.new.body.set("spoke", to.name)
		p.new.body.set("placed", p.new.endpoint.placed)
		p.new.raw = p.new.body.raw()
	}
	return list, nil
}

// candidates are the spokes as they will be, with what they have reported and what is placed there.
func (w *work) candidates(list []planned) ([]*candidate, error) {
	spokes, endpoints := maps.Clone(w.state.spokes), maps.Clone(w.state.layout.endpoints)
	for _, p := range list {
		switch {
		case p.kind == KindSpoke && p.new.raw == nil:
			delete(spokes, p.name)
		case p.kind == KindSpoke:
			spokes[p.name] = p.new.spoke
		case p.kind == KindEndpoint && p.new.raw == nil:
			delete(endpoints, p.name)
		case p.kind == KindEndpoint:
			endpoints[p.name] = p.new.endpoint
		}
	}
	said, _, err := reports(w.tx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*candidate{}
	for name, s := range spokes {
		byName[name] = &candidate{name: name, labels: s.labels, gpus: map[string]GPU{}, booked: map[string]int{}}
		for _, g := range said[name].GPUs {
			byName[name].gpus[g.Type] = g
		}
	}
	for _, e := range endpoints {
		if c := byName[e.spoke]; c != nil {
			c.booked[c.typeOf(e)] += e.wants().GPUs
		}
	}
	return slices.Collect(maps.Values(byName)), nil
}

// typeOf is the type of GPU that an endpoint has at a spoke: the one that it wants, or the only one that there is.
func (c *candidate) typeOf(e *endpointPart) string {
	if w := e.wants(); w.GPU != "" || len(c.gpus) != 1 {
		return w.GPU
	}
	for t := range c.gpus {
		return t
	}
	return ""
}
