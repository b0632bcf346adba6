package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/fleet/roster"
)

// podFrom reads a pod as an API server writes it.
func podFrom(t *testing.T, text string) *Pod {
	t.Helper()
	p := &Pod{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func poolFrom(t *testing.T, text string) *InferencePool {
	t.Helper()
	p := &InferencePool{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// ready is a pod that serves, but for what is said of it.
func ready(name, ip, annotations, more string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q, "uid": "uid of %[1]s", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {%s} %s},
		"spec": {"containers": [{"name": "engine", "ports": [{"containerPort": 8000, "protocol": "TCP"}], "futureField": 1}]},
		"status": {"phase": "Running", "podIP": %q, "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]}}`, name, annotations, more, ip)
}

const large = `{"metadata": {"name": "large", "uid": "1", "resourceVersion": "7", "generation": 3}, "spec": {
	"selector": {"matchLabels": {"app": "vllm", "b": "c"}}, "targetPorts": [{"number": 8000}], "appProtocol": "http", "future": {"x": 1},
	"endpointPickerRef": {"group": "", "kind": "Service", "name": "picker", "port": {"number": 9002}}}, "status": {"parents": []}}`

func twoPorts(text string) string {
	return strings.Replace(text, `[{"number": 8000}]`, `[{"number": 8000}, {"number": 8001}]`, 1)
}

// table is what is found, as text.
func table(f found) (lines []string) {
	for _, w := range f.workers {
		line := fmt.Sprintf("%s %s %s", w.Worker.Name, w.Worker.Addr, w.Worker.Engine)
		for name, v := range map[string]any{"block": w.Worker.BlockSize, "ranks": w.Worker.Ranks} {
			if v != uint32(0) {
				line += fmt.Sprintf(" %s=%v", name, v)
			}
		}
		for _, v := range []string{w.Worker.Role, w.Metrics, w.Events, w.Replay, w.Why} {
			if v != "" {
				line += " " + v
			}
		}
		lines = append(lines, line)
	}
	return append(lines, f.problems...)
}

func TestFind(t *testing.T) {
	long := strings.Repeat("very-long.", 20) + "x"
	for name, step := range map[string]struct {
		pool string
		pods []string
		want []string
	}{
		"one":  {large, []string{ready("a", "10.0.0.1", "", "")}, []string{"a 10.0.0.1:8000 attached"}},
		"IPv6": {large, []string{ready("a", "2001:db8::1", "", "")}, []string{"a [2001:db8::1]:8000 attached"}},
		"ports": {twoPorts(large), []string{ready("a", "10.0.0.1", "", ""), ready("a-0", "10.0.0.2", "", "")},
			[]string{"a-0 10.0.0.1:8000 attached", "a-0-0 10.0.0.2:8000 attached", "a-0-1 10.0.0.2:8001 attached", "a-1 10.0.0.1:8001 attached"}},
		"ports with events": {twoPorts(large), []string{ready("a", "10.0.0.1", `"spokegate.io/kv-events": "tcp://*:5557", "spokegate.io/kv-replay": "tcp://*:5657"`, "")},
			[]string{"a-0 10.0.0.1:8000 attached tcp://*:5557 tcp://*:5657", "a-1 10.0.0.1:8001 attached tcp://*:5558 tcp://*:5658"}},
		"all annotations": {large, []string{ready("a", "10.0.0.1", `"spokegate.io/engine": "vllm", "spokegate.io/block-size": "16", "spokegate.io/role": "decode",
			"spokegate.io/metrics": "/m", "spokegate.io/kv-events": "tcp://*:5557", "other.io/engine": "?"`, `, "labels": {"llm-d.ai/role": "prefill"}`)},
			[]string{"a 10.0.0.1:8000 vllm block=16 decode /m tcp://*:5557"}},
		"label of llm-d": {large, []string{ready("a", "10.0.0.1", "", `, "labels": {"llm-d.ai/role": "prefill"}`), ready("b", "10.0.0.2", "", `, "labels": {"llm-d.ai/role": "both"}`),
			ready("c", "10.0.0.3", "", `, "labels": {"llm-d.ai/role": "encode"}`)},
			[]string{"a 10.0.0.1:8000 attached prefill", "b 10.0.0.2:8000 attached", `pod c is left out: llm-d.ai/role "encode": want prefill, decode or both`}},
		"joins": {large, []string{ready("a", "10.0.0.1", `"spokegate.io/joins": "true", "spokegate.io/engine": "?"`, ""), ready("b", "10.0.0.2", `"spokegate.io/joins": "yes"`, ""),
			ready("c", "10.0.0.3", `"spokegate.io/joins": "false"`, "")},
			[]string{"c 10.0.0.3:8000 attached", `pod b is left out: annotation spokegate.io/joins "yes": want true or false`}},
		"mistakes": {large, []string{ready("a", "10.0.0.1", `"spokegate.io/engine": "ollama", "spokegate.io/block-size": "-1", "spokegate.io/ranks": "4000",
			"spokegate.io/kv-replay": "tcp://*:1", "spokegate.io/metrics": "m", "spokegate.io/kv_events": "tcp://*:1"`, ""), ready("b", "10.0.0.2", `"spokegate.io/role": "both sides"`, "")},
			[]string{"a 10.0.0.1:8000 attached",
				`pod a: annotation spokegate.io/block-size is not taken: "-1": want a number`,
				`pod a: annotation spokegate.io/engine is not taken: engine "ollama": want one of vllm, sglang, trtllm, sim, attached`,
				`pod a: annotation spokegate.io/kv-replay is not taken: kv_replay goes with kv_events`,
				`pod a: annotation spokegate.io/kv_events is not known`,
				`pod a: annotation spokegate.io/metrics is not taken: metrics "m": want a path, as /metrics`,
				`pod a: annotation spokegate.io/ranks is not taken: invalid worker: 4000 data-parallel ranks: want at most 1024`,
				`pod b is left out: spokegate.io/role "both sides": want prefill, decode or both`}},
		"states": {large, []string{
			ready("a", "10.0.0.1", "", `, "deletionTimestamp": "2026-01-01T00:00:00Z"`),
			strings.Replace(ready("b", "10.0.0.2", "", ""), `"Ready", "status": "True"`, `"Ready", "status": "False"`, 1),
			strings.Replace(ready("c", "10.0.0.3", "", ""), "Running", "Failed", 1), strings.Replace(ready("d", "10.0.0.4", "", ""), "Running", "Succeeded", 1),
			ready("e", "", "", "")},
			[]string{"a 10.0.0.1:8000 attached its pod is being deleted", "b 10.0.0.2:8000 attached its pod is not ready"}},
		"an address again": {large, []string{
			ready("old", "10.0.0.1", "", `, "deletionTimestamp": "2026-01-01T00:00:00Z"`), ready("new", "10.0.0.1", "", ""),
			ready("a", "10.0.0.2", "", ""), strings.Replace(ready("b", "10.0.0.2", "", ""), "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", 1)},
			[]string{"b 10.0.0.2:8000 attached", "new 10.0.0.1:8000 attached", "pod a is left out: its address 10.0.0.2 is that of pod b"}},
		"a node's address": {large, []string{ready("serves", "10.0.0.1", "", ""),
			strings.Replace(strings.Replace(ready("crashes", "10.0.0.1", "", ""), "2026-01-01", "2026-01-02", 1), `"Ready", "status": "True"`, `"Ready", "status": "False"`, 1)},
			[]string{"serves 10.0.0.1:8000 attached", "pod crashes is left out: its address 10.0.0.1 is that of pod serves"}},
		"events of other hosts": {large, []string{ready("a", "10.0.0.1", `"spokegate.io/kv-events": "tcp://10.0.0.9:6379", "spokegate.io/kv-replay": "tcp://metadata.internal:80"`, "")},
			[]string{"a 10.0.0.1:8000 attached",
				`pod a: annotation spokegate.io/kv-events is not taken: "tcp://10.0.0.9:6379": want tcp://*:PORT, for a pod tells of itself alone`,
				`pod a: annotation spokegate.io/kv-replay is not taken: "tcp://metadata.internal:80": want tcp://*:PORT, for a pod tells of itself alone`}},
		"a long name":      {large, []string{ready(long, "10.0.0.1", "", "")}, []string{long[:53] + "-" + hashed(long) + " 10.0.0.1:8000 attached"}},
		"a link's address": {large, []string{ready("a", "169.254.0.1", "", "")}, []string{`pod a is left out at port 8000: invalid worker: address "169.254.0.1:8000": want one host that others reach, and a port`}},
	} {
		p, err := poolOf(poolFrom(t, step.pool))
		if err != nil {
			t.Fatal(err)
		}
		pods := map[string]pod{}
		for _, text := range step.pods {
			o := podFrom(t, text)
			pods[o.Name] = podOf(o)
		}
		if diff := cmp.Diff(step.want, table(find(p, pods, "large"))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNamesFit(t *testing.T) {
	seen := map[string]string{}
	for n := 1; n <= 253; n++ {
		for _, suffix := range []string{"", "-0", "-7"} {
			name := strings.Repeat("a", n)
			got := shortened(name, suffix)
			if len(got) > 64 || !strings.HasSuffix(got, suffix) || n+len(suffix) <= 64 && got != name+suffix {
				t.Errorf("%s %s: %s", name, suffix, got)
			}
			if before, taken := seen[got]; taken && suffix != "" {
				t.Errorf("%s twice: %s", got, before)
			}
			seen[got] = name + suffix
		}
	}
}

func TestPoolOf(t *testing.T) {
	p, err := poolOf(poolFrom(t, large))
	if err != nil || p.selector != "app=vllm,b=c" || !slices.Equal(p.ports, []int32{8000}) || p.picker.Name != "picker" || p.generation != 3 || p.version != "7" {
		t.Errorf("%+v, %v", p, err)
	}
	for change, want := range map[string]string{
		`"matchLabels": {}`: "matchLabels is empty", `"matchLabels": {"a b": "c"}`: "matchLabels",
	} {
		if _, err := poolOf(poolFrom(t, strings.Replace(large, `"matchLabels": {"app": "vllm", "b": "c"}`, change, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
	for ports, want := range map[string]string{
		`[]`: "0 ports", `[{"number": 0}]`: "0: want each", `[{"number": 1}, {"number": 1}]`: "1: want each", `[{"number": 65536}]`: "65536",
		`[{"number":1},{"number":2},{"number":3},{"number":4},{"number":5},{"number":6},{"number":7},{"number":8},{"number":9}]`: "9 ports",
	} {
		if _, err := poolOf(poolFrom(t, strings.Replace(large, `[{"number": 8000}]`, ports, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ports, err)
		}
	}
}

// TestRestarts: a container that was started again is another run, behind the same name and address.
func TestRestarts(t *testing.T) {
	p, _ := poolOf(poolFrom(t, large))
	text := ready("a", "10.0.0.1", "", "")
	again := strings.Replace(text, `"phase"`, `"containerStatuses": [{"restartCount": 2}], "initContainerStatuses": [{"restartCount": 1}], "phase"`, 1)
	epochs := []string{}
	for _, text := range []string{text, again} {
		epochs = append(epochs, find(p, map[string]pod{"a": podOf(podFrom(t, text))}, "large").workers[0].Worker.Epoch)
	}
	if want := []string{hashed("uid of a") + "-0", hashed("uid of a") + "-3"}; !slices.Equal(epochs, want) {
		t.Errorf("%q, want %q", epochs, want)
	}
}

// TestALotIsSaid: what one pod says is bounded, whatever it says.
func TestALotIsSaid(t *testing.T) {
	p, err := poolOf(poolFrom(t, large))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 200_000)
	many := map[string]string{}
	for i := range 5000 {
		many[fmt.Sprintf("%sa-%04d", Prefix, i)] = "x"
	}
	for name, annotations := range map[string]map[string]string{
		"joins": {Joins: long}, "role": {Prefix + "role": long}, "engine": {Prefix + "engine": long}, "metrics": {Prefix + "metrics": "/" + long}, "many": many,
		"kv-events": {Prefix + "kv-events": "tcp://*:" + long}, "block-size": {Prefix + "block-size": long},
	} {
		o := podFrom(t, ready("a", "10.0.0.1", "", ""))
		o.Annotations = annotations
		is := podOf(o)
		said := strings.Join(find(p, map[string]pod{"a": is}, "large").problems, "\n")
		if is.entry != (roster.Entry{}) || said == "" || len(said) > 1000 {
			t.Errorf("%s: %+.300v, %d bytes: %.300s", name, is.entry, len(said), said)
		}
	}
}

// TestManyNewPods put nobody out that serves, or was there before them.
func TestManyNewPods(t *testing.T) {
	p, err := poolOf(poolFrom(t, large))
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]pod{}
	for i := range 10_000 {
		is := pod{name: fmt.Sprintf("new-%d", i), ip: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), created: time.Unix(int64(1000+i), 0), ready: i%4 == 0}
		pods[is.name] = is
	}
	pods["served"] = pod{name: "served", ip: "10.0.0.1", created: time.Unix(1, 0), ready: true}
	pods["going"] = pod{name: "going", ip: "10.0.0.2", created: time.Unix(1, 0), ready: true, deleting: true}
	f := find(p, pods, "large")
	there := map[string]bool{}
	for _, w := range f.workers {
		there[w.Worker.Name] = true
	}
	if len(f.workers) != fleet.MaxWorkers || len(f.problems) != 10_002-fleet.MaxWorkers || !there["served"] || there["going"] || !there["new-9996"] || !there["new-1"] || there["new-9999"] {
		t.Errorf("%d workers, %d problems: %v", len(f.workers), len(f.problems), there["served"])
	}
}
