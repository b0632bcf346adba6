package doctor

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// aDoor is a door that is well, as its pages tell it.
func aDoor(change func(a *About, fleet map[string]any)) pages {
	a := About{Role: "door", Name: "d1", Spoke: "north", Version: "v1", Folder: "/", Flags: map[string]string{
		"listen": "127.0.0.1:1", "admin": "127.0.0.1:1", "body-limit": "33554432", "fleet-listen": "unix:/nowhere", "redis": "", "ops": "x"},
		Policy: &PolicyStatus{Revision: 7, Digest: "aa", From: "file p.yaml"}}
	fleet := map[string]any{"door": "d1", "envoy_connected": true,
		"endpoints": []any{map[string]any{"name": "large", "workers": 2, "pickable": 2}},
		"workers":   []any{aWorker("g1", nil), aWorker("g2", nil)}}
	if change != nil {
		change(&a, fleet)
	}
	about := func() any {
		now := a
		if a.At.IsZero() {
			now.At = time.Now()
		}
		return now
	}
	return pages{"/about": about, "/fleet": fleet, "/readyz": "ok   well\n"}
}

func aWorker(name string, more map[string]any) map[string]any {
	w := map[string]any{"name": name, "endpoint": "large", "state": "ready", "pickable": true, "engine": "vllm", "version": "v1",
		"address": "", "blocks_address": "", "block_size": 16, "index": "indexed"}
	maps.Copy(w, more)
	return w
}

// elsewhere are the findings of a scripted door that has no Envoy and no sockets here.
var elsewhere = []string{"envoy-unreachable", "join-closed", "listener-closed"}

func TestFleets(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *About, fleet map[string]any)
		wants  []string
	}{
		"well": {nil, nil},
		"nobody": {func(_ *About, f map[string]any) {
			f["workers"], f["endpoints"] = []any{}, []any{map[string]any{"name": "large", "pickable": 0}}
		}, []string{"endpoint-empty"}},
		"one alone": {func(_ *About, f map[string]any) {
			f["endpoints"] = []any{map[string]any{"name": "large", "workers": 2, "pickable": 1}}
		}, []string{"endpoint-alone"}},
		"Envoy away": {func(_ *About, f map[string]any) { f["envoy_connected"] = false }, []string{"envoy-away"}},
		"a stray":    {second(map[string]any{"endpoint": "larg"}), []string{"worker-stray"}},
		"not ready":  {second(map[string]any{"state": "failed", "reason": "out of memory"}), []string{"worker-not-ready"}},
		"degraded":   {second(map[string]any{"degraded": []string{"kv-transfer: tcp"}}), []string{"worker-degraded"}},
		"events off": {second(map[string]any{"index": "predictive", "block_size": 0, "index_reason": "none"}), []string{"kv-events-off"}},
		"diverging":  {second(map[string]any{"index": "degraded", "index_reason": "diverging"}), []string{"kv-not-followed"}},
		"no events":  {second(map[string]any{"index": "predictive", "engine": "trtllm"}), []string{"kv-no-events", "engine-differs"}},
		"blocks":     {second(map[string]any{"block_size": 32}), []string{"block-size-differs"}},
		"versions":   {second(map[string]any{"version": "v0"}), []string{"versions-differ"}},
		"refused":    {func(a *About, _ map[string]any) { a.Policy.Refused = "no team x" }, []string{"policy-refused"}},
		"from disk":  {func(a *About, _ map[string]any) { a.Policy.FromDisk = true }, []string{"policy-from-disk"}},
		"silent hub": {func(a *About, _ map[string]any) { a.Policy.HubSilent = 600 }, []string{"policy-silent"}},
		"no policy":  {func(a *About, _ map[string]any) { a.Policy.Revision = 0 }, []string{"policy-none"}},
		"clock":      {func(a *About, _ map[string]any) { a.At = time.Now().Add(-time.Hour) }, []string{"clock-wrong"}},
		"redis":      {func(a *About, _ map[string]any) { a.Flags["redis"] = "redis://…@stores:6379" }, []string{"redis-secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := examine(t, Target{Ops: []string{serve(t, aDoor(c.change))}})
			wantIDs(t, without(r, elsewhere), c.wants...)
		})
	}
}

func second(more map[string]any) func(*About, map[string]any) {
	return func(_ *About, f map[string]any) { f["workers"] = []any{aWorker("g1", nil), aWorker("g2", more)} }
}

// without leaves findings of these ids out.
func without(r Report, ids []string) (out Report) {
	for _, f := range r.Findings {
		skip := false
		for _, id := range ids {
			skip = skip || f.ID == id
		}
		if !skip {
			out.Findings = append(out.Findings, f)
		}
	}
	return out
}

func TestTwoDoorsThatDiffer(t *testing.T) {
	one := serve(t, aDoor(nil))
	two := serve(t, aDoor(func(a *About, _ map[string]any) { a.Name, a.Policy.Digest, a.Policy.Revision = "d2", "bb", 8 }))
	r := examine(t, Target{Ops: []string{one, two}})
	wantIDs(t, without(r, elsewhere), "policies-differ", "redis-none")
	if f := find(r, "policies-differ"); f == nil || f.Where != "spoke north" || !strings.Contains(f.Saw, "d1 (revision 7)") || !strings.Contains(f.Saw, "d2 (revision 8)") {
		t.Errorf("%+v", f)
	}
	three := serve(t, aDoor(func(a *About, _ map[string]any) { a.Name, a.Flags["redis"] = "d3", "redis://127.0.0.1:1" }))
	wantIDs(t, without(examine(t, Target{Ops: []string{one, three}}), elsewhere), "redis-differs", "redis-unreachable")
}

// TestShimsAndEngines: the shim takes less than the door lets through, its engine answers anybody, caches nothing and has more ranks.
func TestShimsAndEngines(t *testing.T) {
	engine := func(model, block string) string {
		return serve(t, pages{"/v1/models": map[string]any{"data": []any{map[string]any{"id": model, "max_model_len": 4096}}},
			"/metrics": "vllm:cache_config_info{block_size=\"" + block + "\",enable_prefix_caching=\"False\"} 1\n" +
				"vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"1\"} 0\n"})
	}
	shim := func(name, engine string) string {
		return serve(t, pages{"/readyz": "ok   well\n", "/about": func() any {
			return About{Role: "worker", Name: name, Spoke: "north", Version: "v1", Folder: "/", At: time.Now(), Flags: map[string]string{
				"attach": "http://" + engine, "body-limit": "1048576", "endpoint": "large", "ranks": "0", "kv-ranks": "1", "kv-events": "tcp://e:1"}}
		}})
	}
	r := examine(t, Target{Ops: []string{serve(t, aDoor(nil)), shim("g1", engine("llama", "16")), shim("g2", engine("qwen", "16"))}})
	wantIDs(t, without(r, elsewhere), "worker-body-limit", "engine-on-loopback", "prefix-cache-off", "ranks-differ", "model-differs", "kv-no-replay")
	if f := find(r, "model-differs"); f == nil || f.Saw != "models: llama, qwen" {
		t.Errorf("%+v", f)
	}
}

// TestAShimThatServesAnybody is a side door.
func TestAShimThatServesAnybody(t *testing.T) {
	open := serve(t, pages{"/v1/chat/completions": map[string]any{"choices": []any{}}})
	good := serve(t, pages{"/v1/chat/completions": 401})
	door := func(at string) string {
		return serve(t, aDoor(func(_ *About, f map[string]any) { f["workers"] = []any{aWorker("g1", map[string]any{"address": at})} }))
	}
	wantIDs(t, without(examine(t, Target{Ops: []string{door(open)}}), elsewhere), "shim-open")
	wantIDs(t, without(examine(t, Target{Ops: []string{door(good)}}), elsewhere))
}

func TestWhatDoesNotAnswer(t *testing.T) {
	const gone = "127.0.0.1:1"
	r := examine(t, Target{Ops: []string{gone, serve(t, pages{"/readyz": "FAIL no policy\n"})}})
	wantIDs(t, r, "ops-unreachable", "ops-strange", "not-ready")
	wantIDs(t, examine(t, Target{Dirs: []string{t.TempDir()}, Key: "k"}), "nothing-found", "request-no-door")
	// Who does not answer is named by the file of its folder.
	one, two := t.TempDir(), t.TempDir()
	for file, at := range map[string]string{filepath.Join(one, "run", "w.ops"): gone, filepath.Join(two, "run", "ops"): "127.0.0.1:0"} {
		if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(at+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r = examine(t, Target{Dirs: []string{one, two}})
	wantIDs(t, r, "ops-unreachable")
	var named []string
	for _, f := range r.Findings {
		if f.ID == "ops-unreachable" {
			named = append(named, f.Where)
		}
	}
	slices.Sort(named)
	if want := []string{"127.0.0.1:0 of " + filepath.Join(two, "run", "ops"), gone + " of " + filepath.Join(one, "run", "w.ops")}; !slices.Equal(named, want) {
		t.Errorf("they are named %q", named)
	}
}

// TestASlowCheckIsCut: what does not answer ends neither the visit nor the other checks.
func TestASlowCheckIsCut(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for patience := 300 * time.Millisecond; ; patience *= 4 { // a slow machine needs more for the other checks
		r := Examine(t.Context(), Target{Engines: []string{"http://" + lis.Addr().String()}, Ops: []string{serve(t, aDoor(nil))}, Patience: patience})
		if r.Has("check-cut") && find(r, "policy-refused") == nil && len(r.Findings) >= 10 {
			return
		}
		if patience > time.Minute {
			t.Fatalf("%+v", r)
		}
	}
}
