package test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// redisHung stops Redis for a while. No request suffers: each door keeps to its share of every limit until Redis answers.
func (s stores) redisHung(t *testing.T, _ *siege) {
	s.redis.Freeze()
	defer s.redis.Thaw()
	s.fallback(t, 1)
	for _, u := range s.ups { // half of six
		held := fill(t, u, "shared", 3)
		r := u.do(t, post(u.key("shared"), "/v1/chat/completions", oneToken))
		wantRefusal(t, r, "", http.StatusTooManyRequests, "concurrency_limit_exceeded")
		for _, h := range held {
			h.cut()
		}
	}
	s.opsSay(t, "this door counts by itself, its share is 1/2")
	s.redis.Thaw()
	s.fallback(t, 0)
}

// redisKilled kills Redis; it comes back empty. What was used of a day is known all the same, meanwhile and afterwards.
func (s stores) redisKilled(t *testing.T, _ *siege) {
	ten, budget := s.sameUsed(t, "ten", "requests_per_day"), s.sameUsed(t, "budget", "tokens_per_day")
	if err := <-s.looked; err != nil {
		t.Fatal(err)
	}
	s.redis.Kill()
	s.fallback(t, 1)
	for _, u := range s.ups {
		wantUsedUp(t, u.do(t, post(u.key("ten"), "/v1/chat/completions", oneToken)))
		wantUsedUp(t, u.do(t, post(u.key("budget"), "/v1/chat/completions", fiftyTokens)))
	}
	time.Sleep(2 * time.Second) // the fault's length
	s.redis.Restart()
	s.fallback(t, 0)
	for _, u := range s.ups {
		eventually(t, factPatience, func() error {
			if u.metric(t, "spokegate_limits_rebuilds_total") == 0 {
				return fmt.Errorf("%s has put nothing back", u.name)
			}
			return nil
		})
		wantUsedUp(t, u.do(t, post(u.key("ten"), "/v1/chat/completions", oneToken)))
	}
	s.settlesAt(t, "ten", "requests_per_day", ten) // a door that is by itself again for a moment tells of its share
	s.settlesAt(t, "budget", "tokens_per_day", budget)
}

// fallback waits until both doors say so.
func (s stores) fallback(t *testing.T, want float64) {
	t.Helper()
	eventually(t, factPatience, func() error {
		for _, u := range s.ups {
			if v := u.metric(t, "spokegate_limits_fallback"); v != want {
				return fmt.Errorf("spokegate_limits_fallback of %s is %v", u.name, v)
			}
		}
		return nil
	})
}

// kafkaKilled kills the broker under load, and starts it again. Journals wait on disk meanwhile, and the pages say so.
func (s stores) kafkaKilled(t *testing.T, _ *siege) {
	s.kafka.kill()
	s.opsSay(t, "not shipping")
	if err := s.kafka.start(); err != nil {
		t.Fatal(err)
	}
	s.opsSay(t, "records shipped")
}
