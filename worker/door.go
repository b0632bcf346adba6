package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// How soon a lost door is tried again: doubling, with up to half of it as jitter.
const (
	rejoinFirst = 100 * time.Millisecond
	rejoinMost  = 5 * time.Second
)

// unreachedAfter is how long a door may be away before the log tells why.
const unreachedAfter = rejoinMost

// goodbyeMost is how long a door may take to end a stream that we have closed.
const goodbyeMost = 2 * time.Second

// Bounds for the beat that a door asks for.
const (
	beatLeast = 20 * time.Millisecond
	beatMost  = time.Minute
	beatFirst = time.Second
)

// door keeps the worker joined to one door.
type door struct {
	target string
	host   string                           // that its certificate names; empty: the target's
	token  string                           // empty: none is asked for
	secure credentials.TransportCredentials // nil: not encrypted
	hello  func(Description) *workerv1.Hello
	states *states
	keys   *keys
	doors  *doors
	seeds  *seeds
	begun  *begun
	cut    func(admission, reason string)
	log    *slog.Logger

	unreached time.Duration // for tests; 0: unreachedAfter
}

var (
	errEngineChanged = errors.New("the engine started anew, or is known better")
	errStopped       = errors.New("the worker has stopped")
	errUnreached     = errors.New("no connection")
)

// onSocket says that a target is a Unix socket: of this machine, and for one user.
func onSocket(target string) bool { return strings.HasPrefix(target, "unix:") }

// credentials are those of the connection.
func (d *door) credentials() credentials.TransportCredentials {
	if d.secure == nil || onSocket(d.target) {
		return insecure.NewCredentials()
	}
	return d.secure
}

// run joins again and again until the worker has stopped or ctx ends. stopping ends what only waits for a door.
func (d *door) run(ctx, stopping context.Context) {
	defer d.doors.know(d.target)()
	conn, err := d.dial()
	if err != nil {
		d.log.Error("door cannot be joined", "door", d.target, "error", err)
		return
	}
	defer conn.Close()
	wait, said := rejoinFirst, ""
	for {
		joined, err := d.session(ctx, stopping, workerv1.NewFleetClient(conn))
		switch {
		case stopping.Err() != nil || errors.Is(err, errStopped):
			return
		case errors.Is(err, errEngineChanged):
			wait = rejoinFirst
			continue
		case joined:
			wait, said = rejoinFirst, ""
		}
		text := status.Convert(err).Message()
		d.doors.tried(d.target, text)
		if text != said {
			d.log.Warn("not joined to door", "door", d.target, "error", text)
			said = text
		}
		if errors.Is(err, errUnreached) {
			continue // that was waiting enough
		}
		if !sleep(stopping, wait+rand.N(wait/2)) {
			return
		}
		wait = min(2*wait, rejoinMost)
	}
}

func (d *door) dial() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(d.credentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: rejoinFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: rejoinMost},
			MinConnectTimeout: rejoinMost,
		}),
	}
	//lint:ignore SA1019 gRPC refuses an authority that is not the name in the credentials
	if d.host != "" && d.credentials().Info().ServerName == "" {
		options = append(options, grpc.WithAuthority(d.host))
	}
	return grpc.NewClient(d.target, options...)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// session is one stream, from Hello to its end. joined says that the door welcomed us.
func (d *door) session(ctx, stopping context.Context, c workerv1.FleetClient) (joined bool, err error) {
	if d.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+d.token)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.connect(ctx, cancel, stopping, c)
	if err != nil {
		return false, err
	}
	at, _ := d.states.now()
	s := &session{door: d, stream: stream, told: at.hello, box: newBegunBox(), welcomes: make(chan *workerv1.Welcome), ended: make(chan error, 1)}
	defer s.release()
	go s.receive(ctx)
	err = stream.Send(&workerv1.JoinRequest{Message: &workerv1.JoinRequest_Hello{Hello: d.hello(at.hello)}})
	if err != nil {
		err = s.cause(err)
	} else {
		err = s.run(ctx)
	}
	s.end(cancel, errors.Is(err, errEngineChanged) || errors.Is(err, errStopped))
	return s.name != "", err
}

// connect waits for a door until stopping, and from time to time breaks off to tell why there is none.
func (d *door) connect(ctx context.Context, cancel func(), stopping context.Context, c workerv1.FleetClient) (workerv1.Fleet_JoinClient, error) {
	unhook := context.AfterFunc(stopping, cancel)
	patience := time.AfterFunc(cmp.Or(d.unreached, unreachedAfter), cancel)
	stream, err := c.Join(ctx, grpc.WaitForReady(true))
	unhook()
	if patience.Stop() {
		return stream, err
	}
	if err == nil { // at the last moment
		err = context.Canceled
	}
	return nil, fmt.Errorf("%w: %s", errUnreached, strings.TrimPrefix(status.Convert(err).Message(), "latest balancer error: "))
}
