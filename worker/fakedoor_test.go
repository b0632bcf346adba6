package worker

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/identity"
)

// fakeDoor welcomes whoever joins and remembers what it was told.
type fakeDoor struct {
	workerv1.UnimplementedFleetServer
	minter *identity.Minter
	secret *workerv1.Secret // told in the welcome; nil: none
	beat   time.Duration
	target string

	mu     sync.Mutex
	tokens []string
	hellos []*workerv1.Hello
	told   []*workerv1.Status
	begun  bool // it wants to hear
	begins []*workerv1.Begun
	joined int           // streams that live
	kick   chan struct{} // closed: end the streams
	server *grpc.Server
	served chan error
}

func newDoor(t *testing.T, name string) *fakeDoor {
	t.Helper()
	return newDoorAt(t, name, "127.0.0.1:0")
}

func newDoorAt(t *testing.T, name, address string) *fakeDoor {
	t.Helper()
	m := identity.NewMinter(name)
	d := &fakeDoor{minter: m, beat: 50 * time.Millisecond, kick: make(chan struct{})}
	d.start(t, address)
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDoor) start(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	d.target, d.server, d.served = l.Addr().String(), grpc.NewServer(), make(chan error, 1)
	workerv1.RegisterFleetServer(d.server, d)
	go func(s *grpc.Server, served chan error) { served <- s.Serve(l) }(d.server, d.served)
}

func (d *fakeDoor) stop() {
	d.server.Stop()
	if err, open := <-d.served; open && err != nil {
		panic(err)
	}
	close(d.served)
}

func (d *fakeDoor) Join(s workerv1.Fleet_JoinServer) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	first, err := s.Recv()
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.tokens = append(d.tokens, strings.Join(md.Get("authorization"), "|"))
	d.hellos = append(d.hellos, first.GetHello())
	d.joined++
	kick, begun := d.kick, d.begun
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.joined--
		d.mu.Unlock()
	}()
	w := &workerv1.Welcome{Door: d.minter.Door(), BeatMs: uint32(d.beat.Milliseconds()), Begun: begun,
		Keys: []*workerv1.Key{{Id: d.minter.Door(), PublicKey: d.minter.PublicKey()}}, Mac: d.secret}
	if err := s.Send(&workerv1.JoinResponse{Message: &workerv1.JoinResponse_Welcome{Welcome: w}}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				ended <- err
				return
			}
			d.mu.Lock()
			if b := m.GetBegun(); b != nil {
				d.begins = append(d.begins, b)
			} else {
				d.told = append(d.told, m.GetStatus())
			}
			d.mu.Unlock()
		}
	}()
	select {
	case err := <-ended:
		if err == io.EOF {
			return nil
		}
		return err
	case <-kick:
		return io.ErrUnexpectedEOF
	}
}

// states are the distinct states told, in order.
func (d *fakeDoor) states() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, s := range d.told {
		name := strings.ToLower(strings.TrimPrefix(s.State.String(), "STATE_"))
		if s.Reason != "" {
			name += "(" + s.Reason + ")"
		}
		if len(all) == 0 || all[len(all)-1] != name {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

func (d *fakeDoor) seen() (hellos, beats int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hellos), len(d.told)
}
