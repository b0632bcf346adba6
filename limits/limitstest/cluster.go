package limitstest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a real Redis Cluster of a test: three masters that share the slots.
type Cluster struct{ Nodes [3]*Redis }

const slots = 16384

// StartCluster starts one, and waits until every node says that all slots are served.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	var c Cluster
	var clients [len(c.Nodes)]*redis.Client
	for i := range c.Nodes {
		c.Nodes[i] = startRedis(t, busArguments)
		clients[i] = redis.NewClient(&redis.Options{Network: "unix", Addr: c.Nodes[i].Socket})
		defer clients[i].Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // nodes learn of each other by gossip, and the machine is busy
	defer cancel()
	for i, client := range clients {
		first, last := i*slots/len(clients), (i+1)*slots/len(clients)-1
		if err := client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			t.Fatalf("slots of node %d: %v", i, err)
		}
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatalf("epoch of node %d: %v", i, err)
		}
	}
	for _, node := range c.Nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		if err := clients[0].Do(ctx, "CLUSTER", "MEET", host, port, node.busPort()).Err(); err != nil {
			t.Fatalf("meeting %s: %v", node.Addr, err)
		}
	}
	for i, client := range clients {
		awaitWhole(ctx, t, i, client)
	}
	return &c
}

// busArguments make a node, with a free port for what nodes say to each other.
func busArguments() ([]string, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	// A node that is slow for a while on a busy machine is not taken for dead.
	return []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-port", port}, nil
}

// busPort is the last of busArguments.
func (r *Redis) busPort() string { return r.more[len(r.more)-1] }

func awaitWhole(ctx context.Context, t testing.TB, i int, client *redis.Client) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := client.ClusterInfo(ctx).Result()
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprint("cluster_slots_ok:", slots)) &&
			strings.Contains(info, "cluster_known_nodes:3") {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("node %d does not find the others: %v\n%s", i, err, info)
		}
	}
}

// URL is where its nodes are, for a configuration.
func (c *Cluster) URL() string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return "redis://" + strings.Join(addrs, ",")
}

// Owner is the node that serves a key.
func (c *Cluster) Owner(t testing.TB, key string) *Redis {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: c.Nodes[0].Socket})
	defer client.Close()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return c.Nodes[min(int(slot)*len(c.Nodes)/slots, len(c.Nodes)-1)]
}
