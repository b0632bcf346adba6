package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/extauthz"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/flight"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/policy"
)

// gate is admission with everything real behind it but the journal.
type gate struct {
	*extauthz.Server
	flights *flight.Table
	key     string
	stop    context.CancelFunc
}

type noJournal struct{}

func (noJournal) Append(*usagev1.Record) {}

// workersBehind is how many a gate picks from.
const workersBehind = 8

func newGate() (*gate, error) {
	secret, hash := identity.NewKey()
	set, err := policy.Parse("bench", fmt.Appendf(nil, policyText, hash))
	if err != nil {
		return nil, err
	}
	snapshot, err := policy.Compile(set, time.Now())
	if err != nil {
		return nil, err
	}
	current := &policy.Current{}
	current.Store(snapshot)
	minter := identity.NewMinter("bench")
	workers, secrets := fleet.New(), map[string]identity.Secret{}
	for i := range workersBehind {
		w := fleet.Worker{Name: fmt.Sprint("w", i), Endpoint: "bench", Addr: fmt.Sprintf("10.0.0.%d:8000", i+1), State: fleet.Ready}
		if _, err := workers.Join(w); err != nil {
			return nil, err
		}
		secrets[w.Addr] = identity.NewSecret()
	}
	workers.Acked(map[string]uint64{"bench": workers.View().Version})
	reg, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	picker := epp.New(epp.Config{Fleet: workers, Policy: current, Registerer: reg})
	ctx, stop := context.WithCancel(context.Background())
	go func() { _ = picker.Run(ctx) }()
	limiter := limits.NewMemory(limits.MemoryConfig{})
	g := &gate{key: secret, stop: stop, flights: flight.New(flight.Config{Limiter: limiter, Journal: noJournal{}, Registerer: reg, Log: log})}
	g.Server = extauthz.New(extauthz.Config{Policy: current, Limiter: limiter, Flights: g.flights, Minter: minter, Picker: picker,
		Secrets:   func(addr string) (identity.Secret, bool) { s, ok := secrets[addr]; return s, ok },
		BodyLimit: 32 << 20, Now: time.Now, Registerer: reg, Log: log})
	return g, nil
}

// end is what meter and access log tell of a request that went well.
func (g *gate) end(id string) {
	now := time.Now()
	g.flights.End(id, flight.Facts{Metered: &flight.Metered{Status: 200, SawEnd: true, At: now}})
	g.flights.End(id, flight.Facts{Logged: &flight.Logged{Status: 200, Attempts: 1, At: now}})
}

// check reads a request as Envoy sends it, admits it, and ends its flight.
func check(size string, length int) (micro, error) {
	g, err := newGate()
	if err != nil {
		return micro{}, err
	}
	bodies, ids, i := requests(g.key, length, false), serials(1<<17), 0
	asked := make([]asking, len(bodies))
	for i, b := range bodies {
		if asked[i], err = newCheck(g.key, ids[0], b.body); err != nil {
			return micro{}, err
		}
	}
	m := micro{name: "extauthz.check_" + size, unit: "µs", times: inMicros, note: "bare copy and xxh3 of the body", against: touched(bodies[0].body), done: g.stop}
	m.ours = func() error {
		id, req := ids[i%len(ids)], extauthz.Request{}
		frames := asked[i%different].named(id)
		i++
		if err := req.FromWire(frames); err != nil {
			return err
		}
		defer req.Free()
		resp, err := g.Check(context.Background(), &req)
		if err != nil || resp.GetOkResponse() == nil {
			return fmt.Errorf("not admitted: %v %w", resp, err)
		}
		g.end(id)
		return nil
	}
	for range 1000 { // until the picker knows its workers
		if err = m.ours(); err == nil {
			return m, nil
		}
		time.Sleep(time.Millisecond)
	}
	return m, err
}

// asking is a message of Envoy's in frames of HTTP/2, and where the id of its request stands.
type asking struct {
	frames mem.BufferSlice
	id     []byte
}

func newCheck(key, id string, body []byte) (asking, error) {
	return newAsking(id, checkMessage(key, id, body))
}

func checkMessage(key, id string, body []byte) *authv3.CheckRequest {
	http := &authv3.AttributeContext_HttpRequest{Method: "POST", Path: "/v1/chat/completions", Host: "bench", RawBody: body,
		Headers: map[string]string{"authorization": "Bearer " + key, "content-type": "application/json", "content-length": fmt.Sprint(len(body)),
			":method": "POST", ":path": "/v1/chat/completions", ":authority": "bench", "user-agent": "bench", "x-forwarded-proto": "http", "x-request-id": id}}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: http}}}
}

func newAsking(id string, m proto.Message) (asking, error) {
	b, err := proto.Marshal(m)
	at := bytes.Index(b, []byte(id))
	if err != nil || at < 0 {
		return asking{}, fmt.Errorf("no request id in the message: %w", err)
	}
	a := asking{id: b[at : at+len(id)]}
	for frame := range slices.Chunk(b, 16<<10) {
		a.frames = append(a.frames, mem.SliceBuffer(frame))
	}
	return a, nil
}

// named gives the request another id of the same length.
func (a asking) named(id string) mem.BufferSlice {
	copy(a.id, id)
	return a.frames
}
