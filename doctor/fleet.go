package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

var workerKinds = []Kind{
	{"envoy-away", "workers", Fault, "without Envoy on the line no worker can be picked", "start the door's Envoy: `spokegate envoy run` with the door's own flags"},
	{"endpoint-empty", "workers", Fault, "requests for its models are answered 503", "start a worker with this -endpoint; of those that are there, the findings below say why they are not picked"},
	{"endpoint-alone", "workers", Note, "while it is down or renewed, requests for its models fail", "a second worker"},
	{"worker-stray", "workers", Warning, "the policy has no endpoint of that name, so it is never picked", "correct -endpoint of the worker, or add the endpoint to the policy"},
	{"worker-not-ready", "workers", Warning, "it is not picked", "its log and its /readyz have more than the reason beside it"},
	{"worker-degraded", "workers", Warning, "it serves, and worse than it seems", "docs/workers.md, silent degradation, tells what each cause means"},
	{"kv-events-off", "workers", Warning, "the picker does not know what it holds, and sends prompts where they are not cached", "give the engine kv-events-config and the worker -kv-events, -kv-replay (docs/kv-events.md); a shim that starts the engine does so itself"},
	{"kv-not-followed", "workers", Warning, "it announces its blocks, and the picker does not use them", "the reason stands beside it; `spokegate epp status` shows more"},
	{"kv-no-events", "workers", Note, "such an engine, or this door by -guess-blocks, announces no blocks: what was sent where is remembered instead", "nothing, if that is meant"},
	{"kv-no-replay", "workers", Warning, "after a gap, or a restart of the shim, all blocks are forgotten until they are stored anew", "replay_endpoint in the engine's kv-events-config, and -kv-replay of the worker"},
	{"block-size-differs", "workers", Warning, "the same prompt makes other blocks at each: shorter blocks are reused more, and load is compared wrongly", "the same --block-size (SGLang: --page-size) for all engines of an endpoint"},
	{"engine-differs", "workers", Warning, "requests of one endpoint are answered by different programs", "one kind of engine, in one version, an endpoint; while it is replaced this is as it must be"},
	{"model-differs", "workers", Fault, "answers depend on which worker is picked, or are 404", "engines of one endpoint serve the same models under the same names (-served-name)"},
	{"prefix-cache-off", "workers", Warning, "every prompt is computed from its beginning, whatever the picker chooses", "--enable-prefix-caching of vLLM"},
	{"ranks-differ", "workers", Warning, "doors choose among other data-parallel ranks than there are", "-ranks of the worker as --data-parallel-size of the engine"},
	{"worker-body-limit", "workers", Fault, "what the door lets through the worker answers with 413", "-body-limit of the worker at least that of all doors"},
	{"context-lengths-differ", "workers", Warning, "whether a long prompt is served depends on which worker is picked", "the same --max-model-len for all engines of an endpoint"},
	{"shim-open", "workers", Fault, "it must answer 401 or 403: a side door to the engine", "what listens there is no shim, or a strange one: let doors alone reach engines"},
	{"engine-open", "workers", Fault, "whoever reaches it has the engine without a key, unmetered", "bind the engine to loopback or a Unix socket (`-engine` starts it so), and close the port"},
	{"engine-on-loopback", "workers", Note, "who has a login on the machine reaches it without a key", "let the shim start it (-engine vllm: on a Unix socket), or give it a machine or pod of its own"},
	{"engine-unreachable", "workers", CannotTell, "what it holds and serves cannot be compared", "look from the worker's machine"},
	{"versions-differ", "workers", Note, "so it must be while one release follows another, and not for long", "bring all to the same release"},
}

// eventful are engines that announce their blocks.
var eventful = []string{"vllm", "sglang"}

// checkFleets looks at workers as doors and pickers know them.
func checkFleets(_ context.Context, e *exam) {
	for _, d := range e.of("door", "epp") {
		if d.fleet == nil {
			continue
		}
		if d.is("door") {
			e.say("envoy-away", d.where(), !d.fleet.Envoy, "its Envoy is %s", map[bool]string{true: "connected", false: "not connected"}[d.fleet.Envoy])
		}
		for _, p := range d.fleet.Endpoints {
			where := d.where() + " endpoint " + p.Name
			e.say("endpoint-empty", where, p.Pickable == 0, "%d of %d workers can be picked", p.Pickable, p.Workers)
			e.say("endpoint-alone", where, p.Pickable == 1, "%d of %d workers can be picked", p.Pickable, p.Workers)
		}
		for _, w := range d.fleet.Workers {
			e.judgeWorker(d, w)
		}
		e.compareWorkers(d)
	}
}

func (e *exam) judgeWorker(d *process, w workerLine) {
	where := d.where() + " worker " + w.Name
	known := slices.ContainsFunc(d.fleet.Endpoints, func(p struct {
		Name              string
		Workers, Pickable int
	}) bool {
		return p.Name == w.Endpoint
	})
	e.say("worker-stray", where, !known, "it serves endpoint %s", w.Endpoint)
	e.say("worker-not-ready", where, w.State != "ready", "%s %s", w.State, w.Reason)
	e.say("worker-degraded", where, len(w.Degraded) > 0, "degraded: %d causes%s", len(w.Degraded), listed(w.Degraded))
	switch {
	case w.State != "ready":
	case w.Index == "indexed":
		e.say("kv-events-off", where, false, "its blocks of %d tokens are followed", w.BlockSize)
	case w.Index == "degraded" || w.Blocks != "" && d.flag("guess-blocks") != "true":
		e.found("kv-not-followed", where, "%s: %s", w.Index, w.IndexReason)
	case slices.Contains(eventful, w.Engine) && d.flag("guess-blocks") != "true":
		e.found("kv-events-off", where, "%s announces no blocks: %s", w.Engine, w.IndexReason)
	default:
		e.found("kv-no-events", where, "%s: %s", w.Engine, w.IndexReason)
	}
}

// compareWorkers looks for what differs within an endpoint.
func (e *exam) compareWorkers(d *process) {
	sizes, engines := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, w := range d.fleet.Workers {
		if w.BlockSize > 0 {
			collect(sizes, w.Endpoint, fmt.Sprint(w.BlockSize))
		}
		if w.Engine != "" {
			collect(engines, w.Endpoint, w.Engine)
		}
	}
	e.sayDiffering("block-size-differs", d.where(), "tokens in a block", sizes)
	e.sayDiffering("engine-differs", d.where(), "engines", engines)
}

func collect(into map[string]map[string]bool, endpoint, value string) {
	if into[endpoint] == nil {
		into[endpoint] = map[string]bool{}
	}
	into[endpoint][value] = true
}

// sayDiffering wants one value an endpoint.
func (e *exam) sayDiffering(id, where, what string, values map[string]map[string]bool) {
	for _, endpoint := range slices.Sorted(maps.Keys(values)) {
		list := slices.Sorted(maps.Keys(values[endpoint]))
		e.say(id, where+" endpoint "+endpoint, len(list) > 1, "%s: %s", what, strings.Join(list, ", "))
	}
}

// checkShims holds workers against the doors that send to them.
func checkShims(_ context.Context, e *exam) {
	var most float64
	for _, d := range e.of("door") {
		most = max(most, node{d.flag("body-limit")}.number(0))
	}
	for _, w := range e.of("worker") {
		limit := node{w.flag("body-limit")}.number(0)
		e.say("worker-body-limit", w.where(), limit < most, "it takes bodies of %.0f bytes; doors let %.0f through", limit, most)
		if w.flag("attach") != "" && w.flag("kv-events") != "" {
			e.say("kv-no-replay", w.where(), w.flag("kv-replay") == "", "-kv-replay is %s", orElse(w.flag("kv-replay"), "not given"))
		}
	}
}

// engineFacts are what an engine says of itself.
type engineFacts struct {
	models  []string
	longest float64 // max_model_len; 0: it does not say
	prefix  string  // enable_prefix_caching
	ranks   int     // of its metrics
}

// checkEngines asks engines that run already what they serve, and compares within each endpoint.
func checkEngines(ctx context.Context, e *exam) {
	models, lengths := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, w := range e.of("worker") {
		at := w.flag("attach")
		if at == "" || onLoopback(at) && !w.here {
			continue
		}
		f, err := askEngine(ctx, at)
		if err != nil {
			e.found("engine-unreachable", w.where(), "%s: %v", Public(at), err)
			continue
		}
		endpoint := w.flag("endpoint")
		collect(models, endpoint, strings.Join(f.models, " "))
		if f.longest > 0 {
			collect(lengths, endpoint, fmt.Sprintf("%.0f", f.longest))
		}
		if f.prefix != "" {
			e.say("prefix-cache-off", w.where(), strings.EqualFold(f.prefix, "false"), "enable_prefix_caching is %s", f.prefix)
		}
		if f.ranks > 1 || w.flag("ranks") != "" && w.flag("ranks") != "0" {
			told := max(node{w.flag("ranks")}.number(0), node{w.flag("kv-ranks")}.number(1))
			e.say("ranks-differ", w.where(), f.ranks > 0 && int(told) != f.ranks, "the engine has %d, doors are told %.0f", f.ranks, told)
		}
	}
	e.sayDiffering("model-differs", "engines of", "models", models)
	e.sayDiffering("context-lengths-differ", "engines of", "tokens at most", lengths)
}

func askEngine(ctx context.Context, at string) (f engineFacts, err error) {
	var list struct {
		Data []struct {
			ID     string
			Length float64 `json:"max_model_len"`
		}
	}
	if err := getJSON(ctx, at, "/v1/models", &list); err != nil {
		return f, err
	}
	for _, m := range list.Data {
		f.models = append(f.models, m.ID)
		f.longest = max(f.longest, m.Length)
	}
	slices.Sort(f.models)
	page, err := metrics(ctx, at, "/metrics", "vllm:cache_config_info", "vllm:num_requests_running")
	if err != nil {
		return f, nil // not every engine has them
	}
	for _, s := range page["vllm:cache_config_info"] {
		f.prefix = labelled(s, "enable_prefix_caching")
	}
	ranks := map[string]bool{}
	for _, s := range page["vllm:num_requests_running"] {
		ranks[labelled(s, "engine")] = true
	}
	f.ranks = len(ranks)
	return f, nil
}
