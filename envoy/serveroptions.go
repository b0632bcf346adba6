package envoy

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/spokegate/spokegate/wire"
)

// callWorkers stand ready for calls: more than run at one time, by far less than there are streams.
const callWorkers = 16

// roomForLogs is for the door process, whose socket only its Envoy reaches. While it hangs Envoy gathers what the access log has to
// tell, of each request once a second, in one message: if that were refused the ends of all these requests would be lost.
func roomForLogs() grpc.ServerOption { return grpc.MaxRecvMsgSize(1<<30 + 1<<20) }

// ServerOptions is what a gRPC server that this Envoy calls must be made with, the door's and the picker's alike: room for
// the largest body (gRPC's own limit is 4 MiB), patience with Envoy's pings (grpc-go hangs up on frequent ones), windows
// that do not slow a body down, and messages that read themselves. On a Unix socket it also learns which process calls, for
// Server.AwaitDeath.
func (d Door) ServerOptions() []grpc.ServerOption {
	d = d.withDefaults()
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{}),
		grpc.MaxRecvMsgSize(int(d.BodyLimit) + 1<<20), // headers and metadata come on top
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: min(d.Keepalive/2, 500*time.Millisecond), PermitWithoutStream: true}),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		// Admissions run on goroutines whose stacks have grown already. A stream that lasts keeps one of them; where all are
		// taken, a call gets a new one.
		grpc.NumStreamWorkers(callWorkers),
		wire.Option(),
	}
}
