package test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// endless runs for longer than anybody waits here.
const endless = `{"model":"sim-small","max_tokens":100000,"stream":true,"messages":[{"role":"user","content":"%d"}]}`

// fillAll takes all places of the load's key, spread over the doors, wants no more to be had, and frees them. A door that
// has missed Redis meanwhile, on a machine that is too busy, has counted some by itself: then it is done again.
func (s *siege) fillAll(t *testing.T) {
	t.Helper()
	for last := range 3 {
		before := s.redisErrors(t)
		held := s.takeAll(t)
		full := true
		for _, u := range s.ups {
			r := u.do(t, post(u.key(loadKey), "/v1/chat/completions", oneToken))
			if full = full && r.status == http.StatusTooManyRequests; r.status == http.StatusOK && (last == 2 || s.redisErrors(t) == before) {
				t.Errorf("%d places were taken at %d doors, and %s has another: %v", len(held), len(s.ups), u.name, r)
			}
		}
		for _, h := range held {
			h.cut()
		}
		s.free(t)
		if full {
			return
		}
	}
}

// takeAll holds every place. What a killed door held in Redis becomes free when its leases expire, after half a minute.
func (s *siege) takeAll(t *testing.T) (held []*stream) {
	t.Helper()
	for i, u := range s.ups {
		eventually(t, factPatience, func() error {
			for len(held) < loadPlaces*(i+1)/len(s.ups) {
				h, err := u.openStream(context.WithoutCancel(t.Context()), post(u.key(loadKey), "/v1/chat/completions", fmt.Sprintf(endless, len(held))))
				if err != nil {
					return err
				}
				t.Cleanup(h.cut)
				if h.resp.StatusCode != http.StatusOK {
					return fmt.Errorf("only %d of %d places are to be had at %s: %s", len(held), loadPlaces, u.name, h.resp.Status)
				}
				held = append(held, h)
			}
			return nil
		})
	}
	return held
}

func (s *siege) redisErrors(t testing.TB) (n int) {
	t.Helper()
	for _, u := range s.ups {
		for line := range strings.Lines(u.page(t, "/metrics")) {
			if series, value, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(series, "spokegate_limits_redis_errors_total") {
				errors, _ := strconv.Atoi(value)
				n += errors
			}
		}
	}
	return n
}
