package envoy

import (
	"fmt"
	"log/slog"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	acks, nacks *prometheus.CounterVec // by type of resource
	connected   prometheus.Gauge
}

// newMetrics registers with r, which may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		acks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_envoy_acks_total", Help: "Configurations that Envoy took, by type of resource."}, []string{"type"}),
		nacks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_envoy_nacks_total", Help: "Configurations that Envoy refused, by type of resource."}, []string{"type"}),
		connected: f.NewGauge(prometheus.GaugeOpts{
			Name: "spokegate_envoy_connected", Help: "1 while Envoy is on the line."}),
	}
}

// short is the last part of a resource's type, such as Cluster.
func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }

// oneNode gives every Envoy that calls the one snapshot: a door has one Envoy.
type oneNode struct{}

func (oneNode) ID(*corev3.Node) string { return nodeKey }

const nodeKey = "envoy"

// quiet passes on what the cache complains about. Its chatter holds whole resources.
type quiet struct{ log *slog.Logger }

func (quiet) Debugf(string, ...any)               {}
func (quiet) Infof(string, ...any)                {}
func (q quiet) Warnf(format string, args ...any)  { q.log.Warn(fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }
