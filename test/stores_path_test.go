package test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/limits/limitstest"
	"github.com/spokegate/spokegate/usage"
)

// stores is a spoke of two doors on a real Redis and a real Kafka.
type stores struct {
	*siege
	redis  *limitstest.Redis
	kafka  *broker
	looked chan error // see look
}

// TestStores runs the path on the real stores: the doors share their counters, every record is shipped, and neither store's
// fall is noticed by clients.
func TestStores(t *testing.T) {
	t.Parallel()
	s := stores{redis: limitstest.StartRedis(t), kafka: newBroker(t), looked: make(chan error, 1)}
	started := make(chan error, 1)
	go func() { started <- s.kafka.start() }() // which takes its time; the doors do not wait for it
	// A machine that is busy with other tests is not to have doors count by themselves.
	patient := []string{"-redis-timeout", "1s"}
	s.siege = besiege(t, "stores", func(o *upOptions) { o.more = patient }, nil, "SPOKEGATE_REDIS="+s.redis.URL(), "SPOKEGATE_KAFKA="+s.kafka.addr)
	second, journal := secondPair(t, s.ups[0], append(patient, "-redis", s.redis.URL(), "-kafka", s.kafka.addr)...)
	s.ups = append(s.ups, second)
	s.spools = append(s.spools, filepath.Join(second.dir, "spool"), journal)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Run("limits hold across doors", s.acrossDoors)
	t.Run("a rate holds across doors", s.rateAcrossDoors)
	t.Run("a quota of requests holds across doors", s.requestsAcrossDoors)
	t.Run("a quota of tokens holds across doors", s.tokensAcrossDoors)
	go s.look(t.Context())
	s.opsSay(t, "records shipped") // what waited until Kafka came
	t.Run("doctor finds them well", s.doctorLooks)
	for _, f := range []fault{
		{name: "both stores are there", breaks: s.nothingBreaks},
		{name: "redis hung", breaks: s.redisHung},
		{name: "redis killed", breaks: s.redisKilled},
		{name: "kafka killed", breaks: s.kafkaKilled},
	} {
		s.suffers(t, f)
	}
	t.Run("everything is in Kafka", s.allShipped)
}

// acrossDoors fills a limit of six half at each door.
func (s stores) acrossDoors(t *testing.T) {
	held := append(fill(t, s.ups[0], "shared", 3), fill(t, s.ups[1], "shared", 3)...)
	s.inRedis(t, "shared", 6)
	ask := func(u *up) reply { return u.do(t, post(u.key("shared"), "/v1/chat/completions", oneToken)) }
	for _, u := range s.ups {
		wantRefusal(t, ask(u), "", http.StatusTooManyRequests, "concurrency_limit_exceeded")
	}
	held[0].cut() // at the first door; the place is to be had at the second
	eventually(t, factPatience, func() error {
		if r := ask(s.ups[1]); r.status != http.StatusOK {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, h := range held {
		h.cut()
	}
	s.free(t)
}

// rateAcrossDoors spends a burst of six by turns.
func (s stores) rateAcrossDoors(t *testing.T) {
	for i := range 6 {
		u := s.ups[i%2]
		r := u.ok(t, post(u.key("paced"), "/v1/chat/completions", oneToken))
		if left := r.header.Get("X-Ratelimit-Remaining-Requests"); left != fmt.Sprint(5-i) {
			t.Errorf("after %d requests at two doors, %q remain", i+1, left)
		}
	}
	for _, u := range s.ups {
		wantRefusal(t, u.do(t, post(u.key("paced"), "/v1/chat/completions", oneToken)), "", http.StatusTooManyRequests, "rate_limit_exceeded")
	}
}

// inRedis wants n leases of a key's limit counted there, and both doors announced.
func (s stores) inRedis(t *testing.T, key string, n int64) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.redis.Socket})
	defer c.Close()
	eventually(t, factPatience, func() error {
		doors, err := c.ZCard(t.Context(), "{spokegate:local}:doors").Result()
		if err != nil || doors != 2 {
			return fmt.Errorf("%d doors are in Redis (%v)", doors, err)
		}
		at, err := c.Keys(t.Context(), "{spokegate:local}:leases:*"+key+"*").Result()
		if err != nil || len(at) != 1 {
			return fmt.Errorf("the leases of %s are at %v (%v)", key, at, err)
		}
		if got, err := c.ZCard(t.Context(), at[0]).Result(); err != nil || got != n {
			return fmt.Errorf("%d leases of %s are in Redis (%v)", got, key, err)
		}
		return nil
	})
}

// nothingBreaks is the load by itself: the doors count in Redis, and ship to Kafka.
func (s stores) nothingBreaks(t *testing.T, _ *siege) {
	s.fallback(t, 0)
	s.opsSay(t, "records shipped")
}

// kafkaPatience is for a virtual machine that starts beside all the other tests.
const kafkaPatience = 4 * time.Minute

func (s stores) opsSay(t *testing.T, text string) {
	t.Helper()
	eventually(t, kafkaPatience, func() error {
		for _, u := range s.ups {
			if page := u.page(t, "/readyz"); !strings.Contains(page, text) {
				return fmt.Errorf("%s: no %q in %s", u.name, text, page)
			}
		}
		return nil
	})
}

// records are all of the journals, by id.
func (s stores) records(t *testing.T) map[string]*usagev1.Record {
	t.Helper()
	all := map[string]*usagev1.Record{}
	for _, dir := range s.spools {
		if _, err := usage.Read(dir, func(r *usagev1.Record) error {
			if r.GetKind() == usage.KindCheckpoint {
				return nil // about no request
			}
			if all[r.GetId()] != nil {
				t.Errorf("two records have the id %s", r.GetId())
			}
			all[r.GetId()] = r
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (s stores) allShipped(t *testing.T) {
	eventually(t, kafkaPatience, func() error {
		want := s.records(t)
		twice, err := s.kafka.holds(want)
		if err == nil {
			t.Logf("%d records, %d of them twice", len(want), twice)
		}
		return err
	})
}

// TestStoresAway starts where neither store answers: the door opens all the same, serves, and says what is missing.
func TestStoresAway(t *testing.T) {
	t.Parallel()
	nowhere := freeAddr()
	s := besiege(t, "stores-away", nil, nil, "SPOKEGATE_REDIS=redis://"+nowhere, "SPOKEGATE_KAFKA="+nowhere)
	u := s.ups[0]
	r := u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken))
	u.ledger.usage(t, r.admission())
	u.opsSays(t, "/readyz", "counts by itself")
	u.opsSays(t, "/readyz", "not shipping")
}
