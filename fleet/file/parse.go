package file

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/scrape"
)

// List is the file, in YAML or JSON. Unknown keys fail.
type List struct {
	Workers []Entry `yaml:"workers"`
}

// Entry is one worker.
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

// Listed is a worker of the file.
type Listed struct {
	scrape.Target
	Events, Replay string // where its engine publishes KV events; empty: nowhere
}

// Engines that an entry may name.
var engines = []string{"vllm", "sglang", "trtllm", "sim", unknown}

// ranked are those of them that serve with the data-parallel rank that a request names; and perhaps one that is not known.
var ranked = []string{"vllm", "sim", unknown}

// unknown stands for an engine that nobody named.
const unknown = "attached"

// Parse reads a file. All of its workers serve the endpoint, and none is ready. The error names every mistake that it finds.
func Parse(data []byte, endpoint string) ([]Listed, error) {
	if err := plain(data); err != nil {
		return nil, err
	}
	var l List
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&l); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if l.Workers == nil {
		return nil, errors.New("workers is missing: a list, which may be empty ([])")
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	// A fleet of its own says what is wrong with a worker, or with two of them.
	trial := fleet.NewTrial()
	list := make([]Listed, 0, len(l.Workers))
	var wrong []error
	for i, e := range l.Workers {
		t, err := e.listed(endpoint)
		if err == nil {
			err = trial.Join(t.Worker)
		}
		if errors.Is(err, fleet.ErrDuplicate) {
			err = errors.New(strings.TrimSuffix(err.Error(), fleet.ErrDuplicate.Error()) + "twice in this file")
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("workers[%d]: %w", i, err))
		}
		list = append(list, t)
	}
	return list, errors.Join(wrong...)
}

// mostNested is more than the file needs, and the YAML library can bear.
const mostNested = 16

// plain refuses what no such file needs and what the YAML library is not safe with: tags, anchors, and nesting without end.
func plain(data []byte) error {
	brackets, entries, line := 0, 0, 0
	for _, t := range lexer.Tokenize(string(data)) {
		if t.Position.Line != line {
			line, entries = t.Position.Line, 0
		}
		switch t.Type {
		case token.TagType, token.AnchorType, token.AliasType, token.MergeKeyType, token.DirectiveType:
			return fmt.Errorf("[%d:%d] tags, anchors, aliases and directives are not taken", t.Position.Line, t.Position.Column)
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if max(brackets, entries) > mostNested || t.Position.IndentNum > 4*mostNested {
			return fmt.Errorf("[%d:%d] nested more than %d levels deep", t.Position.Line, t.Position.Column, mostNested)
		}
	}
	return nil
}

func (e Entry) listed(endpoint string) (t Listed, err error) {
	engine := cmp.Or(e.Engine, unknown)
	if !slices.Contains(engines, engine) {
		return t, fmt.Errorf("engine %q: want one of %s", e.Engine, strings.Join(engines, ", "))
	}
	if e.Ranks > 1 && !slices.Contains(ranked, engine) {
		return t, fmt.Errorf("ranks: %s takes no rank from a request; give each an address and a worker of its own", engine)
	}
	if e.Metrics != "" && !metricsPath.MatchString(e.Metrics) {
		return t, fmt.Errorf("metrics %q: want a path, as /metrics", e.Metrics)
	}
	for name, value := range map[string]string{"kv_events": e.KVEvents, "kv_replay": e.KVReplay} {
		if value != "" && !eventsEndpoint.MatchString(value) {
			return t, fmt.Errorf("%s %q: want tcp://HOST:PORT", name, value)
		}
	}
	if e.KVReplay != "" && e.KVEvents == "" {
		return t, errors.New("kv_replay goes with kv_events")
	}
	t.Events, t.Replay, t.Metrics = e.KVEvents, e.KVReplay, e.Metrics
	t.Worker = fleet.Worker{Name: e.Name, Endpoint: endpoint, Addr: e.Address, Engine: engine, BlockSize: e.BlockSize, Role: e.Role, Ranks: e.Ranks, State: fleet.Starting}
	return t, nil
}

var eventsEndpoint = regexp.MustCompile(`^tcp://[^/\s]+:[0-9]{1,5}$`)

var metricsPath = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)
