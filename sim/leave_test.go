package sim

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that leaves stops the work at once, and what was generated is told.
func TestClientLeaves(t *testing.T) {
	r := fast()
	r.DecodeTokensPerSecond = 500
	s, url := start(t, r)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	q, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader(`{`+hello+`,"stream":true,"max_tokens":1000000}`))
	q.Header.Set("X-Request-Id", "gone")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	read := int64(0)
	for read < 6 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			read++
		}
	}
	leave()
	resp.Body.Close()
	a := ended(t, s, "gone") // all of it would take half an hour
	if !a.Cut || a.GeneratedTokens < read-1 || a.GeneratedTokens >= 1_000_000 || a.PromptTokens == 0 {
		t.Errorf("account %+v after %d chunks", a, read)
	}
}

// ended waits until the account of a request is closed.
func ended(t *testing.T, s *Sim, id string) RequestAccount {
	t.Helper()
	for until := time.Now().Add(3 * time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if found := s.accounts.find(id); len(found) == 1 && !found[0].Running {
			return found[0]
		}
	}
	t.Fatal("request still runs")
	return RequestAccount{}
}

// Also while it waits for a slot, or for prefill.
func TestClientLeavesBeforeTheFirstByte(t *testing.T) {
	r := fast()
	r.PrefillTokensPerSecond, r.MaxRunning = 1, 2
	s, url := start(t, r)
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			q, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"`+strings.Repeat("abcd", 100+i)+`"}`))
			q.Header.Set("X-Request-Id", fmt.Sprint("gone", i))
			if resp, err := http.DefaultClient.Do(q); err == nil {
				resp.Body.Close()
			}
		}()
	}
	for s.clock.waiting.Load() != 2 || s.clock.running.Load() != 2 {
		time.Sleep(time.Millisecond)
	}
	leave()
	for i := range 4 {
		<-done
		if a := ended(t, s, fmt.Sprint("gone", i)); !a.Cut || a.GeneratedTokens != 0 {
			t.Errorf("%+v", a)
		}
	}
	if n := s.clock.running.Load(); n != 0 {
		t.Errorf("%d still hold a slot", n)
	}
}
