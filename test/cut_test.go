package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// cutClients are fewer than cutPlaces, because a place is free only a moment after its client has left.
func cutClients() int { return lab.scaled(24) }

// cutPlaces is the whole of the key's concurrency.
func cutPlaces() int { return lab.scaled(40) }

func cutRequests() int { return lab.scaled(240) }

// TestCut lets a third of the clients leave at random moments, also before the first byte. Afterwards every admission
// has exactly one usage record, everything is free, and request by request door ≤ shim ≤ engine.
func TestCut(t *testing.T) {
	t.Parallel()
	for i, picker := range pickers {
		t.Run(picker, func(t *testing.T) {
			t.Parallel()
			u := ownUp(t, "cut-"+picker, upOptions{policy: simPolicy(), picker: picker, rates: ratesFile(t)})
			finished := cutTraffic(t, u, uint64(2026+i))
			u.idle(t, factPatience)
			for _, s := range fill(t, u, "cut", cutPlaces()) { // the whole of the key's limit
				s.cut()
			}
			u.idle(t, factPatience)
			cutBalance(t, u, finished)
		})
	}
}

// plan is what one client does.
type plan struct {
	c     call
	over  protocol
	leave time.Duration // after the request was sent; 0: stays to the end
}

func plans(u *up, seed uint64) []plan {
	r := rand.New(rand.NewPCG(seed, 1))
	var out []plan
	for i := range cutRequests() {
		op := operations[r.IntN(len(operations))]
		var body map[string]any
		if err := json.Unmarshal([]byte(op.body), &body); err != nil {
			panic(err)
		}
		for _, name := range []string{"max_tokens", "max_output_tokens"} {
			if body[name] != nil {
				body[name] = 1 + r.IntN(60)
			}
		}
		if op.streams && r.IntN(4) > 0 {
			body["stream"] = true
		}
		text, _ := json.Marshal(body) // of plain values
		p := plan{c: post(u.key("cut"), op.path, string(text)), over: protocols[r.IntN(2)]}
		if i%3 == 0 {
			p.leave = time.Duration(1 + r.IntN(120_000_000))
		}
		out = append(out, p)
	}
	return out
}

// cutTraffic runs the plans, and gives the admissions of those that stayed to the end.
func cutTraffic(t *testing.T, u *up, seed uint64) map[string]bool {
	t.Helper()
	var mu sync.Mutex
	finished, stayed := map[string]bool{}, 0
	work := make(chan plan)
	var clients sync.WaitGroup
	for range cutClients() {
		clients.Go(func() {
			for p := range work {
				id, err := p.run(u)
				mu.Lock()
				if p.leave == 0 {
					stayed++
				}
				if err == nil {
					finished[id] = true
				} else if p.leave == 0 {
					t.Errorf("a client that stayed: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range plans(u, seed) {
		work <- p
	}
	close(work)
	clients.Wait()
	t.Logf("seed %d: %d requests, %d of them stayed, %d got a whole answer", seed, cutRequests(), stayed, len(finished))
	if len(finished) == cutRequests() {
		t.Error("nobody left early: the test proves nothing")
	}
	return finished
}

// run is nil when the answer was whole.
func (p plan) run(u *up) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	if p.leave > 0 {
		time.AfterFunc(p.leave, cancel)
	}
	if p.over.name == "http2" {
		r, err := sendHTTP2(ctx, u.listen, p.c)
		return finished(r, err)
	}
	s, err := u.openStream(ctx, p.c)
	if err != nil {
		return "", err
	}
	defer s.cut()
	body, err := io.ReadAll(s.lines)
	return finished(reply{s.resp.StatusCode, s.resp.Header, body}, err)
}

func finished(r reply, err error) (string, error) {
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("want 200, got %v", r)
	}
	return r.admission(), err
}

// cutBalance compares the journals with what the engines say, request by request. The last shims and engines may be a moment
// behind the door.
func cutBalance(t *testing.T, u *up, finished map[string]bool) {
	t.Helper()
	u.ledger.settles(t)
	eventually(t, journalPatience, func() error {
		entries, err := readJournals(u.dir + "/spool")
		if err != nil {
			return err
		}
		return errors.Join(balanced(entries, true), cutAgrees(t, entries, u.accounts(t), finished))
	})
}

// cutAgrees says what does not fit together.
func cutAgrees(t *testing.T, entries map[string]*entry, accounts map[string][]account, finished map[string]bool) error {
	var errs []error
	outcomes := map[string]int{}
	for id, e := range entries {
		if len(e.usage) == 1 {
			outcomes[e.usage[0].GetOutcome()]++
		}
		if err := inOrder(*e, accounts[id]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
	}
	for id := range finished {
		if e := entries[id]; e == nil || len(e.usage) != 1 || e.usage[0].GetOutcome() != usage.OutcomeComplete {
			errs = append(errs, fmt.Errorf("%s was whole at the client, and is journaled as %+v", id, e))
		}
	}
	delete(accounts, "") // the shim's own probes, which no door admits
	for id := range accounts {
		if entries[id] == nil {
			errs = append(errs, fmt.Errorf("the engine served %s, which was never admitted", id))
		}
	}
	if outcomes[usage.OutcomeClientCut] == 0 || outcomes[usage.OutcomeComplete] < len(finished) {
		errs = append(errs, fmt.Errorf("outcomes: %v", outcomes))
	}
	if len(errs) == 0 {
		t.Logf("outcomes: %v", outcomes)
	}
	return errors.Join(errs...)
}

// inOrder wants door ≤ shim ≤ engine, and equality where nothing was cut.
func inOrder(e entry, engine []account) error {
	if len(e.usage) != 1 {
		return nil // told already
	}
	door := e.usage[0]
	if len(engine) == 0 {
		if door.GetCompletionTokens() != 0 {
			return fmt.Errorf("the door counted %d tokens of a request that no engine knows", door.GetCompletionTokens())
		}
		return nil
	}
	if len(engine) > 1 || len(e.served) != 1 {
		return fmt.Errorf("%d engines and %d shims know it: %+v %v", len(engine), len(e.served), engine, e.served)
	}
	shim, sim := e.served[0], engine[0]
	if sim.Running {
		return fmt.Errorf("the engine still runs it: %+v", sim)
	}
	if door.GetCompletionTokens() > shim.GetCompletionTokens() || shim.GetCompletionTokens() > sim.Generated {
		return fmt.Errorf("the door counted %d, the shim %d, the engine %d", door.GetCompletionTokens(), shim.GetCompletionTokens(), sim.Generated)
	}
	if door.GetOutcome() != usage.OutcomeComplete {
		return nil
	}
	if door.CompletionTokens == nil || shim.CompletionTokens == nil || door.PromptTokens == nil ||
		door.GetCompletionTokens() != sim.Generated || shim.GetCompletionTokens() != sim.Generated ||
		door.GetPromptTokens() != sim.Prompt || shim.GetPromptTokens() != sim.Prompt || door.GetCachedTokens() != sim.Cached {
		return fmt.Errorf("complete, but they differ: door %s, shim %s, engine %+v", usage.AppendJSON(nil, door), usage.AppendJSON(nil, shim), sim)
	}
	return nil
}
