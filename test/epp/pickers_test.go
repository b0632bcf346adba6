package epp

import (
	"fmt"
	"net"
	"os"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

// Environment that names pickers other than ours.
const (
	pickerAddr    = "PICKER_ADDR"     // of all workers
	pickerAddrOne = "PICKER_ADDR_ONE" // of one and two
	pickerAddrTwo = "PICKER_ADDR_TWO" // of three and six
)

// pickers are of three pools: all workers, and two that share the workers between them.
type pickers struct {
	main, first, second string                // addresses; first and second are empty where there is no picker of theirs
	loads               func(addr string) int // requests that main believes a worker to have; nil: it does not tell
	closers             []func()
}

func startPickers(dir string, ws *workers) (*pickers, error) {
	if other := os.Getenv(pickerAddr); other != "" {
		return &pickers{main: other, first: os.Getenv(pickerAddrOne), second: os.Getenv(pickerAddrTwo)}, nil
	}
	ps := &pickers{}
	for _, p := range []struct {
		addr *string
		pool []*worker
	}{{&ps.main, ws.all()}, {&ps.first, []*worker{ws.one, ws.two}}, {&ps.second, []*worker{ws.three, ws.six}}} {
		var loads func(string) int
		var err error
		if *p.addr, loads, err = ps.start(p.pool); err != nil {
			return nil, err
		}
		if ps.loads == nil {
			ps.loads = loads
		}
	}
	return ps, nil
}

func (ps *pickers) start(pool []*worker) (string, func(string) int, error) {
	f := fleet.NewUnacknowledged()
	for i, w := range pool {
		if _, err := f.Join(fleet.Worker{Name: fmt.Sprint("w", i), Endpoint: "pool", Addr: w.addr, State: fleet.Ready}); err != nil {
			return "", nil, err
		}
	}
	_, h := identity.NewKey()
	set, err := policy.Parse("p", []byte("models: [{name: m, endpoint: pool}]\nendpoints: [{name: pool}]\nteams: [{name: t, models: [\"*\"]}]\nkeys: [{id: k, team: t, sha256: \""+h.String()+"\"}]\n"))
	if err != nil {
		return "", nil, err
	}
	snap, err := policy.Compile(set, time.Now())
	if err != nil {
		return "", nil, err
	}
	current := &policy.Current{}
	current.Store(snap)
	reg := prometheus.NewRegistry()
	g := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	h2 := epp.NewHealth()
	h2.SetReady(true)
	h2.Register(g)
	extprocv3.RegisterExternalProcessorServer(g, &epp.Server{Picker: epp.New(epp.Config{Fleet: f, Policy: current, Registerer: reg}), Endpoint: "pool", BodyLimit: 32 << 20, Now: time.Now})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = g.Serve(lis) }()
	ps.closers = append(ps.closers, g.Stop)
	return lis.Addr().String(), func(addr string) int {
		all, _ := reg.Gather()
		for _, m := range all {
			if m.GetName() != "spokegate_picker_worker_load" {
				continue
			}
			for _, v := range m.GetMetric() {
				labels := map[string]string{}
				for _, l := range v.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["worker"] == addr && labels["kind"] == "requests" {
					return int(v.GetGauge().GetValue())
				}
			}
		}
		return -1
	}, nil
}

func (ps *pickers) stop() error {
	for _, c := range ps.closers {
		c()
	}
	return nil
}
