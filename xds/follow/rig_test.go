package follow

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/push"
	"github.com/spokegate/spokegate/xds/push/pushtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token = "a token for tests alone"
	// patience is for what must come, on a machine that is busy.
	patience = 3 * time.Minute
)

var quiet = slog.New(slog.DiscardHandler)

// hub is a hub's half on a real listener, which can be killed and started again at the same address.
type hub struct {
	*pushtest.Cuts
	t      *testing.T
	addr   string
	server *push.Server
	stop   func() // kills it, as a loss of power does
	// dies is how many messages it sends before it is killed; below 0: it lives.
	dies atomic.Int64
	cfg  push.Config
}

func newHub(t *testing.T, certificates *mtls.Keeper) *hub {
	t.Helper()
	h := &hub{Cuts: &pushtest.Cuts{}, t: t}
	h.cfg = push.Config{Cuts: h, Certificates: certificates, Token: token, Log: quiet, Every: time.Millisecond}
	h.start()
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *hub) start() {
	h.t.Helper()
	h.dies.Store(-1)
	var lis net.Listener
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if lis, err = net.Listen("tcp", orElse(h.addr, "127.0.0.1:0")); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.addr = lis.Addr().String()
	if h.server, err = push.NewServer(h.cfg); err != nil {
		h.t.Fatal(err)
	}
	g := grpc.NewServer(append(h.server.Options(), grpc.StreamInterceptor(h.mortal))...)
	h.server.Register(g)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = g.Serve(lis); ended <- struct{}{} }()
	go func() { _ = h.server.Run(ctx); ended <- struct{}{} }()
	h.stop = func() {
		g.Stop()
		cancel()
		<-ended
		<-ended
		h.stop = func() {}
	}
}

func orElse(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// mortal lets a hub die between two messages.
func (h *hub) mortal(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, &dying{ss, h})
}

type dying struct {
	grpc.ServerStream
	hub *hub
}

func (d *dying) SendMsg(m any) error {
	if left := d.hub.dies.Load(); left == 0 {
		return errors.New("dead")
	} else if left > 0 {
		d.hub.dies.Store(left - 1)
	}
	return d.ServerStream.SendMsg(m)
}

// holder is what the hub knows of a door.
func (h *hub) holder(door string) (push.Holder, bool) {
	all := h.server.Holders()
	i := slices.IndexFunc(all, func(x push.Holder) bool { return x.Spoke == "s" && x.Door == door })
	if i < 0 {
		return push.Holder{}, false
	}
	return all[i], true
}

// await waits until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not so after %v: %s", patience, what)
		}
	}
}

// door is an agent with the hub as its source, over several lives.
type door struct {
	t       *testing.T
	name    string
	dir     string
	hub     *hub
	change  func(*Config)
	current *policy.Current
	agent   *xds.Agent
	source  *Hub
	end     func()
}

func newDoor(t *testing.T, h *hub, name string, change func(*Config)) *door {
	d := &door{t: t, name: name, dir: t.TempDir(), hub: h, change: change}
	t.Cleanup(d.stop)
	return d
}

func (d *door) start() error {
	d.t.Helper()
	cfg := Config{Address: d.hub.addr, Token: token, Spoke: "s", Door: d.name, Dir: d.dir, Retry: 50 * time.Millisecond, Again: 50 * time.Millisecond, Log: quiet}
	if d.change != nil {
		d.change(&cfg)
	}
	var err error
	if d.source, err = New(cfg); err != nil {
		d.t.Fatal(err)
	}
	d.current = &policy.Current{}
	d.agent = xds.NewAgent(d.dir, d.current, d.source, xds.Options{Log: quiet, Patience: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	first, enough := context.WithTimeout(ctx, patience)
	defer enough()
	if err := d.agent.Start(first); err != nil {
		cancel()
		_ = d.source.Close()
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- d.agent.Run(ctx) }()
	go func() { ended <- d.source.Report(ctx) }()
	d.end = func() {
		cancel()
		if err := errors.Join(<-ended, <-ended, d.source.Close()); err != nil {
			d.t.Error(err)
		}
	}
	return nil
}

func (d *door) stop() {
	if d.end != nil {
		d.end()
	}
	d.end = nil
}

// has waits until a revision is in force at the door, and the hub knows.
func (d *door) has(number uint64) {
	d.t.Helper()
	await(d.t, "revision in force, and the hub knows", func() bool {
		h, _ := d.hub.holder(d.name)
		return d.agent.Status().Revision == number && h.Revision == number && h.InFlight == 0
	})
}
