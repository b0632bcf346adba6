// Package roster keeps workers that have no shim in a fleet, as a list of them says that somebody else made: a file, or an API
// server.
//
// It promises that those who stay in the list are not touched, that nobody looks after a worker that has left, and that the fleet
// depends on the last list alone. It does not look whether workers serve (see fleet/scrape): they join as starting.
package roster

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// Entry is what operators say of one worker.
type Entry struct {
	// Name is unique: 1 to 64 of a-z, 0-9, '.', '-'.
	Name string `yaml:"name"`
	// Address is the ip:port by which the gateway knows it; IPv6 in brackets.
	Address string `yaml:"address"`
	// Engine is vllm, sglang, trtllm or sim; left out, its metrics tell.
	Engine string `yaml:"engine"`
	// BlockSize of its KV cache, in tokens; 0: not known, or as its metrics tell.
	BlockSize uint32 `yaml:"block_size"`
	// KVEvents is the endpoint of its kv-events-config, tcp://HOST:PORT, where a HOST of * is that of its address; left out, what it
	// holds is guessed. KVReplay is the replay_endpoint.
	KVEvents string `yaml:"kv_events"`
	KVReplay string `yaml:"kv_replay"`
	// Role is prefill or decode; left out, it does both. Ranks are its data-parallel ranks behind the one address, 0 or 1: one.
	Role  string `yaml:"role"`
	Ranks uint32 `yaml:"ranks"`
	// Metrics is the path of its Prometheus text, where it is another than the engine's usual one.
	Metrics string `yaml:"metrics"`
}

// Worker is one of a list.
type Worker struct {
	scrape.Target
	Events, Replay string // where its engine publishes KV events; empty: nowhere
	// Held is the state that the list itself knows it to be in, for the reason Why: nobody looks after it then. Zero: it is not held.
	Held fleet.State
	Why  string
}

// same says that a worker is the same one as before, held or not.
func (w Worker) same(before Worker) bool {
	before.Held, before.Why = w.Held, w.Why
	return w == before
}

// Engines that an entry may name.
var engines = []string{"vllm", "sglang", "trtllm", "sim", unknown}

// ranked are those of them that serve with the data-parallel rank that a request names; and perhaps one that is not known.
var ranked = []string{"vllm", "sim", unknown}

// unknown stands for an engine that nobody named.
const unknown = "attached"

// Worker is the entry as a worker of an endpoint, which is starting. The error says what is wrong with a field that only workers
// without a shim have; fleet.Join knows the rest.
func (e Entry) Worker(endpoint string) (w Worker, err error) {
	engine := cmp.Or(e.Engine, unknown)
	if !slices.Contains(engines, engine) {
		return w, fmt.Errorf("engine %q: want one of %s", e.Engine, strings.Join(engines, ", "))
	}
	if e.Ranks > 1 && !slices.Contains(ranked, engine) {
		return w, fmt.Errorf("ranks: %s takes no rank from a request; give each an address and a worker of its own", engine)
	}
	if e.Metrics != "" && !metricsPath.MatchString(e.Metrics) {
		return w, fmt.Errorf("metrics %q: want a path, as /metrics", e.Metrics)
	}
	for name, value := range map[string]string{"kv_events": e.KVEvents, "kv_replay": e.KVReplay} {
		if value != "" && !eventsEndpoint.MatchString(value) {
			return w, fmt.Errorf("%s %q: want tcp://HOST:PORT", name, value)
		}
	}
	if e.KVReplay != "" && e.KVEvents == "" {
		return w, errors.New("kv_replay goes with kv_events")
	}
	w.Events, w.Replay, w.Metrics = e.KVEvents, e.KVReplay, e.Metrics
	w.Worker = fleet.Worker{Name: e.Name, Endpoint: endpoint, Addr: e.Address, Engine: engine, BlockSize: e.BlockSize, Role: e.Role, Ranks: e.Ranks, State: fleet.Starting}
	return w, nil
}

var eventsEndpoint = regexp.MustCompile(`^tcp://[^/\s]+:[0-9]{1,5}$`)

var metricsPath = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)
