package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/openai/openai-go/v3/option"

	"github.com/spokegate/spokegate/usage"
)

// TestClientDrain stops the only worker in order while clients go on: who finds nobody is told when to come again, and the
// client's own retries succeed once `up` has started another.
func TestClientDrain(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "clients-drain", upOptions{policy: clientsPolicy(), rates: ratesFile(t), workers: 1})
	r := &retryers{site: clientSite{up: u, url: "http://" + u.listen}}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() { r.ask(t, ctx, i) })
	}
	stop := func() { // also when the test fails
		cancel()
		clients.Wait()
	}
	defer stop()
	r.served(t, 10)
	for range 10 { // all clients may miss the moment, on a slow machine
		victim := u.the(t, "worker")
		if err := syscall.Kill(victim.pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, startPatience, func() error {
			if victim.alive() {
				return errors.New("the worker runs on")
			}
			return nil
		})
		r.served(t, 10)
		if r.came() > 0 {
			break
		}
	}
	stop()
	for _, one := range r.told {
		one.compare(t, u.ledger)
	}
	if r.retries == 0 {
		t.Error("no client had to come again: the test proves nothing")
	}
	t.Logf("%d requests, %d retries", len(r.told), r.retries)
}

// retryers are clients that come again by themselves.
type retryers struct {
	site clientSite

	mu      sync.Mutex
	told    []clientSaid
	retries int
}

// ask sends one request after the other until ctx is done; each must succeed in the end.
func (r *retryers) ask(t *testing.T, ctx context.Context, number int) {
	for ctx.Err() == nil {
		var h heardBy
		client := r.site.goClient(t, "main", &h, option.WithMaxRetries(100))
		got, err := client.Chat.Completions.New(t.Context(), chatParams("sim-small", int64(10+number)))
		if err != nil {
			t.Errorf("client %d: %v after %v", number, err, h.statuses())
			return
		}
		r.mu.Lock()
		r.told = append(r.told, clientSaid{ID: h.id(), Outcome: usage.OutcomeComplete, Prompt: &got.Usage.PromptTokens, Completion: &got.Usage.CompletionTokens})
		r.retries += len(h.answers) - 1
		r.mu.Unlock()
	}
}

// came is how often clients had to come again.
func (r *retryers) came() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retries
}

// served waits for n requests more.
func (r *retryers) served(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.told)
	}
	before := count()
	eventually(t, startPatience, func() error {
		if got := count() - before; got < n {
			return fmt.Errorf("%d of %d requests were served", got, n)
		}
		return nil
	})
}
