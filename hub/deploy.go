package hub

import (
	"context"
	"fmt"

	"github.com/spokegate/spokegate/hub/deploy"
	"github.com/spokegate/spokegate/policy"
)

// Render is a spoke's deployment as YAML: of each of its endpoints that has one, from the template of its stack. Equal revisions
// give equal bytes.
func (h *Hub) Render(_ context.Context, who Actor, spoke string) ([]byte, error) {
	if err := who.seesAll(); err != nil {
		return nil, err
	}
	st := h.state.Load()
	s := st.spokes[spoke]
	if s == nil {
		return nil, fmt.Errorf("%s: %w", path(KindSpoke, spoke), ErrNotFound)
	}
	items := map[string]*deploy.Item{}
	for name, e := range st.layout.endpoints {
		if e.spoke == spoke && e.deployment != nil {
			items[name] = &deploy.Item{Endpoint: name, Deployment: *e.deployment}
		}
	}
	for name, m := range st.layout.models {
		// A model with a name of its own at the engine is an adapter, or another word that its arguments must know of.
		if i := items[m.GetEndpoint()]; i != nil && m.GetEngineName() == "" {
			i.Models = append(i.Models, name)
		}
	}
	list := make([]deploy.Item, 0, len(items))
	for _, i := range items {
		list = append(list, *i)
	}
	out, err := h.templates.Render(spoke, s.site, list)
	if err != nil {
		return nil, &Invalid{policy.Problems{{Path: path(KindSpoke, spoke), Text: err.Error()}}}
	}
	return out, nil
}
