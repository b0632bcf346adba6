package doctor

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
)

// startRedis runs the real one on a socket, with these settings.
func startRedis(t *testing.T, settings ...string) (url string) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("redis-server", append([]string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", ""}, settings...)...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("the real Redis is missing: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer client.Close()
	for deadline := time.Now().Add(3 * time.Minute); client.Ping(context.Background()).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Redis does not answer")
		}
	}
	return "unix://" + socket
}

func TestRedis(t *testing.T) {
	look := func(url string) Report {
		e := &exam{Target: Target{Redis: url, RedisTimeout: time.Minute, Patience: time.Minute}} // no test of speed
		checkRedis(t.Context(), e)
		return e.report()
	}
	good := look(startRedis(t, "--appendonly", "yes"))
	wantIDs(t, good)
	if len(good.Findings) < 7 {
		t.Errorf("%d findings", len(good.Findings))
	}
	wantIDs(t, look(startRedis(t, "--maxmemory", "1mb", "--maxmemory-policy", "allkeys-lru")), "redis-evicts", "redis-memory", "redis-forgets")
	wantIDs(t, look(startRedis(t, "--replicaof", "127.0.0.1 1", "--appendonly", "yes")), "redis-replica")
	wantIDs(t, look("unix:///nowhere/redis"), "redis-unreachable")
	wantIDs(t, look("redis://%zz"), "redis-unreachable")
}

func TestRedisByItsWords(t *testing.T) {
	for name, c := range map[string]struct {
		said      map[string]string
		clustered bool
		wants     []string
	}{
		"old":                     {map[string]string{"redis_version": "6.2.1", "maxmemory_policy": "noeviction", "aof_enabled": "1"}, false, []string{"redis-version"}},
		"a cluster asked as one":  {map[string]string{"redis_version": "7.4.0", "maxmemory_policy": "noeviction", "cluster_enabled": "1"}, true, nil},
		"a cluster asked as none": {map[string]string{"redis_version": "7.4.0", "maxmemory_policy": "noeviction", "cluster_enabled": "1"}, false, []string{"redis-cluster"}},
		"one that says little":    {map[string]string{"redis_version": "8.0.0"}, false, []string{"redis-unsaid"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &exam{}
			e.judgeRedis("redis", c.said, c.clustered)
			wantIDs(t, e.report(), c.wants...)
		})
	}
}

func TestTopics(t *testing.T) {
	broker := kafka.Broker{Host: "b", Port: 9092}
	for name, c := range map[string]struct {
		partition kafka.Partition
		wants     []string
	}{
		"good":        {kafka.Partition{Leader: broker, Replicas: []kafka.Broker{broker, broker, broker}, Isr: []kafka.Broker{broker, broker}}, nil},
		"one replica": {kafka.Partition{Leader: broker, Replicas: []kafka.Broker{broker}, Isr: []kafka.Broker{broker}}, []string{"kafka-replicas"}},
		"no leader":   {kafka.Partition{Replicas: []kafka.Broker{broker, broker}, Error: kafka.LeaderNotAvailable}, []string{"kafka-offline"}},
	} {
		e := &exam{}
		e.judgeTopic("kafka", kafka.Topic{Name: "spokegate.usage", Partitions: []kafka.Partition{c.partition}})
		t.Run(name, func(t *testing.T) { wantIDs(t, e.report(), c.wants...) })
	}
	e := &exam{Target: Target{Kafka: []string{"127.0.0.1:1"}}}
	checkKafka(t.Context(), e)
	wantIDs(t, e.report(), "kafka-unreachable")
}
