package test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNetworks uses keys that hold for some networks, where nothing before Envoy is believed.
func TestNetworks(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		for _, forged := range [][]field{
			nil,
			{from("10.1.2.3")},
			{from("10.1.2.3, 10.1.2.4")},
			{{"x-spokegate-client-address", "10.1.2.3"}},
			{{"x-real-ip", "10.1.2.3"}, {"forwarded", "for=10.1.2.3"}, {"x-envoy-external-address", "10.1.2.3"}, {"true-client-ip", "10.1.2.3"}},
		} {
			for _, p := range protocols {
				for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
					r := u.doOver(t, p, post(u.key("inside"), path, oneToken, forged...))
					wantRefusal(t, r, path, http.StatusForbidden, "network_not_allowed")
					u.ledger.refused(r.admission())
				}
				c := get(u.key("inside"), "/v1/models")
				c.fields = append(c.fields, forged...)
				wantRefusal(t, u.doOver(t, p, c), "", http.StatusForbidden, "network_not_allowed")
			}
		}
	})
}

// TestTrustedHops uses such keys behind one proxy, whose last word is believed.
func TestTrustedHops(t *testing.T) {
	t.Parallel()
	u := company(t)
	for _, c := range []struct {
		said   string
		key    string
		status int
	}{
		{"203.0.113.9", "office", 200},
		{"198.51.100.1, 203.0.113.9", "office", 200}, // what the client itself said before
		{"203.0.113.9, 198.51.100.1", "office", 403},
		{"198.51.100.1", "office", 403},
		{"2001:db8::7", "office", 200},
		{"2001:db9::7", "office", 403},
		{"", "office", 403},
		{"nonsense", "office", 403},
		{"10.1.2.3", "inside", 200},
		{"203.0.113.9", "inside", 403},
		{"10.1.2.3, 127.0.0.1", "inside", 403},
		{"", "inside", 403},
	} {
		for _, p := range protocols {
			var said []field
			if c.said != "" {
				said = []field{from(c.said)}
			}
			r := u.doOver(t, p, post(u.key(c.key), "/v1/chat/completions", cheapToken, said...))
			if r.status != c.status || c.status == 403 && checkRefusal(r, "", "network_not_allowed") != nil {
				t.Errorf("%s from %q over %s: want %d, got %v", c.key, c.said, p.name, c.status, r)
			}
		}
	}
	r := u.do(t, post(u.key("office"), "/v1/chat/completions", cheapToken, field{"x-spokegate-client-address", "203.0.113.9"}, from("198.51.100.1")))
	wantRefusal(t, r, "", http.StatusForbidden, "network_not_allowed")
}

// slowed is how many wrong keys were answered so; none is told of before the first.
func (u *up) slowed(t testing.TB, answer string) int {
	t.Helper()
	_, after, ok := strings.Cut(u.page(t, "/metrics"), `spokegate_credentials_slowed_total{answer="`+answer+`"} `)
	if !ok {
		return 0
	}
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWrongKeys guesses keys from one address. Its right key is served as ever, and so are other addresses.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	u := company(t)
	source := from("198.19.0.1")
	right := func() {
		t.Helper()
		u.ok(t, post(u.key("neighbor"), "/v1/chat/completions", cheapToken, source))
	}
	guess := func(n int, at field) reply {
		key := fmt.Sprintf("sk-sg-guess-%d", n)
		return u.do(t, post(key, "/v1/chat/completions", cheapToken, at))
	}
	for n := range 10 {
		wantRefusal(t, guess(n, source), "", http.StatusUnauthorized, "invalid_api_key")
	}
	if n := u.slowed(t, "held"); n != 0 {
		t.Errorf("ten wrong keys, and %d answers were held back", n)
	}
	eventually(t, factPatience, func() error { // on a slow machine the eleventh may come late enough
		began := time.Now()
		r := guess(11, source)
		if n := u.slowed(t, "held"); n == 0 {
			return fmt.Errorf("no answer is held back: %v", r)
		}
		wantRefusal(t, r, "", http.StatusUnauthorized, "invalid_api_key")
		if d := time.Since(began); d < time.Second {
			t.Errorf("an answer that was held back came after %v", d)
		}
		return nil
	})
	before := u.slowed(t, "held")
	right()
	if n := u.slowed(t, "held"); n != before {
		t.Error("the right key from the same address was held back")
	}
	passed := 1 + u.flood(t, source, guess, right)
	if u.slowed(t, "refused") == 0 {
		t.Error("nothing was refused for too many wrong keys")
	}
	if n := u.used(t, "neighbor", "requests_per_day"); n != int64(passed) {
		t.Errorf("%d requests with the right key, and %d counted", passed, n)
	}
}

// flood guesses until some are refused at once. Meanwhile the right key passes, which it returns how often, and a wrong one
// from elsewhere gets the usual answer.
func (u *up) flood(t *testing.T, source field, guess func(int, field) reply, right func()) (passed int) {
	t.Helper()
	eventually(t, factPatience, func() error {
		var mu sync.Mutex
		var refused []reply
		var all sync.WaitGroup
		for n := range 150 {
			all.Go(func() {
				switch r := guess(n, source); r.status {
				case http.StatusUnauthorized:
				case http.StatusTooManyRequests:
					mu.Lock()
					refused = append(refused, r)
					mu.Unlock()
				default:
					t.Errorf("a wrong key gets %v", r)
				}
			})
		}
		right()
		passed++
		if r := guess(0, fromStranger()); r.status != http.StatusUnauthorized {
			t.Errorf("the first wrong key of an address gets %v", r)
		}
		all.Wait()
		if len(refused) == 0 {
			return fmt.Errorf("150 wrong keys at once, and none was refused at once")
		}
		wantRefusal(t, refused[0], "", http.StatusTooManyRequests, "too_many_failed_keys")
		return nil
	})
	return passed
}
