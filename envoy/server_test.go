package envoy

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spokegate/spokegate/fleet"
)

func TestEnvoyDiesAndComesBack(t *testing.T) {
	r := startRig(t, false, nil)
	if !r.server.Connected() {
		t.Fatal("not connected")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dead := make(chan error, 1)
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { dead <- await(r.server, ctx) })
	select {
	case err := <-dead:
		t.Fatalf("dead before it died: %v", err)
	default:
	}
	r.stopEnvoy()
	if err := <-dead; err != nil {
		t.Fatal(err)
	}
	if r.server.Connected() {
		t.Fatal("still connected")
	}
	r.startEnvoy()
	r.post(t, r.list("b")).served(t, "b")
}

// TestDoorDiesAndComesBack: nobody passes meanwhile, and the new process learns what Envoy holds without sending it again.
func TestDoorDiesAndComesBack(t *testing.T) {
	r := startRig(t, false, nil)
	r.post(t, r.list("a")).served(t, "a")
	r.grpc.Stop()
	r.admission.Close()
	a := r.post(t, r.list("a"))
	a.want(t, 503, "unavailable")
	if a.header.Get("retry-after") != "1" {
		t.Errorf("retry-after %q", a.header.Get("retry-after"))
	}
	r.nobodyAsked(t, a)

	before := r.fleet.View().Workers
	r.fleet = fleet.New()
	for _, w := range before {
		if _, err := r.fleet.Join(w); err != nil {
			t.Fatal(err)
		}
	}
	r.registry = nil
	r.serveDoor()
	r.server.SetEndpoints([]string{"large", "empty"})
	r.pickable("a", true)
	if n := testutil.ToFloat64(r.server.acks.metrics.acks.WithLabelValues("ClusterLoadAssignment")); n != 0 {
		t.Errorf("endpoints were sent %v times although Envoy held them", n)
	}
	r.eventually("served again", func() bool { return r.post(t, r.list("a")).status == 200 })
}

func TestEnvoyRefusesAConfiguration(t *testing.T) {
	r := newRig(t, false, func(d *Door) { d.Listen = "203.0.113.1:81" }) // not an address of this host
	r.serveDoor()
	r.launch()
	r.eventually("refused", func() bool { return testutil.ToFloat64(r.server.acks.metrics.nacks.WithLabelValues("Listener")) == 1 })
	r.eventually("logged", func() bool { return strings.Contains(r.log.String(), "envoy refused its configuration") })
	if !strings.Contains(r.log.String(), "203.0.113.1") {
		t.Errorf("Envoy's reason is not in the log: %s", r.log)
	}
}

func TestTimeouts(t *testing.T) {
	r := startRig(t, false, func(d *Door) {
		d.CheckTimeout, d.HeadersTimeout, d.RequestTimeout, d.IdleTimeout = 700*time.Millisecond, 500*time.Millisecond, 1400*time.Millisecond, 2*time.Second
	})
	r.workers["a"].answers(t, hangs)
	const post = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\n"
	t.Run("all", func(t *testing.T) {
		for name, c := range map[string]struct {
			text   string
			status int
			code   string
		}{
			"ext_authz hangs":        {post + "x-test-hang: full\r\ncontent-length: 0\r\n\r\n", 503, "unavailable"},
			"ext_authz head hangs":   {post + "x-test-hang: head\r\ntransfer-encoding: chunked\r\n\r\n", 503, "unavailable"},
			"headers do not come":    {"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n", 408, "request_timeout"},
			"the body does not come": {post + "content-length: 10\r\n\r\n", 408, "request_timeout"},
			"the worker hangs":       {post + "x-test-pick: " + r.list("a") + "\r\ncontent-length: 0\r\n\r\n", 504, "timeout"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a := r.raw(t, c.text)
				if name == "headers do not come" {
					a.id = "none yet"
				}
				a.want(t, c.status, c.code)
			})
		}
	})
}

// TestPickerHangs: no timeout of Envoy's applies to it, the pings cut it off.
func TestPickerHangs(t *testing.T) {
	r := newRig(t, true, func(d *Door) { d.Keepalive = 50 * time.Millisecond })
	lis, err := net.Listen("unix", r.door.PickerSocket) // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	r.serveDoor()
	r.addWorker("a", "large")
	r.server.SetEndpoints([]string{"large"})
	r.startEnvoy()
	a := r.post(t, r.list("a"))
	a.want(t, 503, "unavailable")
	r.nobodyAsked(t, a)
}

func TestConnectionsAreBounded(t *testing.T) {
	r := startRig(t, false, func(d *Door) { d.MaxConnections = 2 })
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		conns = append(conns, c)
	}
	if n, err := conns[2].Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("the third connection is open: %d, %v", n, err)
	}
	conns[0].Close()
	r.eventually("free again", func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, "GET / HTTP/1.1\r\nhost: x\r\n\r\n")
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	})
}

// TestSilentConnectionIsClosed: it takes the place of somebody who has something to say.
func TestSilentConnectionIsClosed(t *testing.T) {
	r := startRig(t, false, func(d *Door) { d.HeadersTimeout, d.IdleTimeout = 300*time.Millisecond, time.Hour })
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("a silent connection: %v", err)
	}
}
