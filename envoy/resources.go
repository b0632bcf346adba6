package envoy

import (
	"slices"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/spokegate/spokegate/fleet"
)

// Resources is what Envoy is told over ADS: the listener, its route, the certificates, where admission is, and for each endpoint of
// the policy a cluster and the workers that are ready. Equal arguments give equal bytes.
func (d Door) Resources(view *fleet.View, endpoints []string) map[resource.Type][]types.Resource {
	d = d.withDefaults()
	r := map[resource.Type][]types.Resource{
		resource.ListenerType: {d.listener(nil)},
		resource.RouteType:    {d.route()},
	}
	for _, s := range append(d.secrets(), d.workerSecrets()...) {
		r[resource.SecretType] = append(r[resource.SecretType], s)
	}
	for _, name := range unique(endpoints) {
		r[resource.ClusterType] = append(r[resource.ClusterType], d.endpointCluster(name))
		r[resource.EndpointType] = append(r[resource.EndpointType], d.assignment(view, name))
	}
	r[resource.ClusterType] = append(r[resource.ClusterType], d.admission())
	return r
}

// unique returns the names sorted, each once.
func unique(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
