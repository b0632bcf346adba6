package epp

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// Services by which a picker's health is asked for.
const (
	// Liveness is of the process: it serves from the beginning, whatever is known of workers, so that a picker which waits for its
	// first word of them is not restarted.
	Liveness = "liveness"
	// Readiness: workers are known, be there none of them, and where a leader is elected this is it. The service of the protocol
	// and the server as a whole (the empty name) say the same.
	Readiness = "readiness"
)

// Health answers gRPC health checks for a picker.
type Health struct{ server *health.Server }

// NewHealth is alive, and not ready.
func NewHealth() *Health {
	h := &Health{health.NewServer()}
	h.server.SetServingStatus(Liveness, healthv1.HealthCheckResponse_SERVING)
	h.SetReady(false)
	return h
}

// Register adds the service to a server.
func (h *Health) Register(g *grpc.Server) { healthv1.RegisterHealthServer(g, h.server) }

// SetReady says whether requests may come; who watches is told when that changes.
func (h *Health) SetReady(ready bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{Readiness, extprocv3.ExternalProcessor_ServiceDesc.ServiceName, ""} {
		h.server.SetServingStatus(service, status)
	}
}
