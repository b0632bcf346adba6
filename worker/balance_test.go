package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/join"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/sim"
)

// A third of the clients leave at random moments, also before the first byte, and one in an answer that never ends: one record
// each, and never more counted than the engine generated; the same where nothing was cut.
func TestBalanceWithTheEngine(t *testing.T) {
	rates := sim.DefaultRates()
	rates.DecodeTokensPerSecond, rates.OverheadMS, rates.MaxRunning = 2000, 1, 32
	engine, err := sim.New(sim.Config{Rates: rates, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine)
	t.Cleanup(func() { server.Close(); http.DefaultClient.CloseIdleConnections() })
	s := newShim(t, server.URL, nil)

	const n = 200
	var all sync.WaitGroup
	left := make([]bool, n)
	for i := range n {
		rnd := rand.New(rand.NewSource(int64(i)))
		path := []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}[rnd.Intn(4)]
		body := fmt.Sprintf(`{"model":"m","stream":%v,"prompt":"hello","input":"hello","messages":[{"role":"user","content":"hello %d"}],"max_tokens":%d,"max_output_tokens":40,"n":%d}`,
			rnd.Intn(4) > 0, i, 20+rnd.Intn(40), 1+rnd.Intn(3))
		ctx, leave := context.WithCancel(context.Background())
		endless := i == 0
		switch left[i] = endless || rnd.Intn(3) == 0; {
		case endless:
			path, body = "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}],"max_tokens":100000000}`
		case left[i]:
			time.AfterFunc(time.Duration(rnd.Intn(60))*time.Millisecond, leave)
		}
		q := s.request(t, ctx, fmt.Sprint("r", i), path, body)
		all.Go(func() {
			defer leave()
			resp, err := s.client.Do(q)
			if err == nil && endless {
				_, _ = resp.Body.Read(make([]byte, 1))
				leave()
			}
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if err != nil && !left[i] {
				t.Errorf("r%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if s.compare(t, server.URL, left) == 0 {
		t.Error("nothing was cut")
	}
	eventually(t, "nothing runs", func() bool { return s.states.count() == 0 })
}

// compare holds each record against what the engine says, and counts those that were cut.
func (s *shim) compare(t *testing.T, engine string, left []bool) int {
	t.Helper()
	cut := 0
	for i := range left {
		id := fmt.Sprint("r", i)
		if left[i] && len(s.journal.of(id)) == 0 && account(t, engine, id) == nil {
			continue // left before the shim had read the headers
		}
		r, spent := s.journal.one(t, id), account(t, engine, id)
		if r.Outcome == complete {
			if spent == nil || number(r.PromptTokens) != spent.PromptTokens || number(r.CompletionTokens) != spent.GeneratedTokens || spent.Cut {
				t.Errorf("%s complete: %v, the engine says %+v", id, r, spent)
			}
			continue
		}
		cut++
		if r.Outcome != clientCut || !left[i] {
			t.Errorf("%s: %v", id, r)
		}
		if spent == nil { // left before the engine had read the request
			spent = &sim.RequestAccount{}
		}
		if r.GetPromptTokens() > spent.PromptTokens || r.GetCompletionTokens() > spent.GeneratedTokens {
			t.Errorf("%s cut: %v, the engine says %+v", id, r, spent)
		}
	}
	return cut
}

// account is what the engine says of a request, when it has ended there; nil: it never saw it.
func account(t *testing.T, engine, id string) *sim.RequestAccount {
	t.Helper()
	var list []sim.RequestAccount
	eventually(t, id+" has ended at the engine", func() bool {
		resp, err := http.Get(engine + "/sim/requests?id=" + id)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		list = nil
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			t.Fatal(err)
		}
		return len(list) == 0 || len(list) == 1 && !list[0].Running
	})
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// With the doors' own service: the worker appears, is ready, comes back under the same name after its engine was
// restarted, and is gone after its end.
func TestJoinsAFleet(t *testing.T) {
	minter := identity.NewMinter("door-1")
	f := fleet.New()
	g := grpc.NewServer()
	workerv1.RegisterFleetServer(g, &join.Server{Fleet: f, Token: "token", Door: "door-1", Keys: minter.Keys, Beat: 50 * time.Millisecond, Log: quiet()})
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer func() { g.Stop(); <-served }()

	s := newShim(t, server(t, nil), func(c *Config) { c.Doors = append(c.Doors, "unix:"+l.Addr().String()) })
	is := func(state fleet.State, epoch string) func() bool {
		return func() bool {
			w := f.View().Workers
			return len(w) == 1 && w[0].State == state && w[0].Epoch == epoch && w[0].Name == "w1" && w[0].Addr == s.Addr()
		}
	}
	eventually(t, "ready", is(fleet.Ready, "e1"))
	s.engine.lives <- Life{State: workerv1.State_STATE_READY, Description: Description{Epoch: "e2"}}
	eventually(t, "ready again", is(fleet.Ready, "e2"))
	s.end(t)
	eventually(t, "gone", func() bool { return len(f.View().Workers) == 0 })
}
