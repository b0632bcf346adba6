package hub

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	ctx := context.Background()
	h := opened(t, Config{Database: filepath.Join(t.TempDir(), "hub.db")})
	must(t, h,
		put(KindSpoke, "a", `{"deployment": {"namespace": "serving", "image": "spokegate:1", "doors": ["door:8090"]}}`), put(KindSpoke, "b", `{}`),
		put(KindEndpoint, "big", `{"spoke": "a", "deployment": {"stack": "plain", "model": "org/m", "image": "vllm:1", "replicas": 2, "gpu": "H100", "gpus": 4}}`),
		put(KindEndpoint, "by-hand", `{"spoke": "a"}`),
		put(KindEndpoint, "other", `{"spoke": "b", "deployment": {"stack": "plain", "model": "org/m", "image": "vllm:1"}}`),
		put(KindModel, "m", `{"endpoint": "big"}`), put(KindModel, "adapter", `{"endpoint": "big", "engine_name": "lora-1"}`))
	out, err := h.Render(ctx, admin, "a")
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	for _, want := range []string{`name: "big"`, `namespace: "serving"`, `replicas: 2`, `            - "m"`, `nvidia.com/gpu: 4`, `-doors=door:8090`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	for _, not := range []string{"other", "by-hand", "adapter", "lora"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is in\n%s", not, text)
		}
	}
	var bad *Invalid
	if _, err := h.Render(ctx, admin, "b"); !errors.As(err, &bad) || !strings.Contains(err.Error(), "spokes[b]: endpoint other: ") {
		t.Error(err)
	}
	if _, err := h.Render(ctx, admin, "c"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for body, want := range map[string]string{
		`{"spoke": "a", "deployment": {"stack": "none", "model": "m", "image": "i"}}`: `endpoints[e].deployment.stack: there is no stack "none"; there are dynamo, llm-d, plain`,
		`{"spoke": "a", "deployment": {"stack": "plain", "image": "i"}}`:              `endpoints[e].deployment: model: want what the engine loads`,
		`{"spoke": "a", "deployment": {"replica": 1}}`:                                `endpoints[e].deployment: unknown field "replica"`,
		`{"spoke": "a", "deployment": null}`:                                          `endpoints[e].deployment: has no value`,
	} {
		if _, err := h.Commit(ctx, Commit{Actor: admin, Changes: []Change{put(KindEndpoint, "e", body)}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := h.Commit(ctx, Commit{Actor: admin, Changes: []Change{put(KindSpoke, "c", `{"deployment": {"doors": ["door"]}}`)}}); err == nil {
		t.Error("an address without a port")
	}
}
