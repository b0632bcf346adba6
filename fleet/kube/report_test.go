package kube

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// written is what a patch leaves in the status, as lines.
func written(t *testing.T, patch []byte) (lines []string) {
	t.Helper()
	var p struct {
		Metadata map[string]string `json:"metadata"`
		Status   struct {
			Parents []json.RawMessage `json:"parents"`
		} `json:"status"`
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		t.Fatal(err)
	}
	lines = append(lines, p.Metadata["resourceVersion"])
	for _, raw := range p.Status.Parents {
		lines = append(lines, string(raw))
	}
	return lines
}

const gateway = `{"parentRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"},"future":[1, 2.50],"conditions":[]}`

func TestPatched(t *testing.T) {
	then, now := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	p, err := poolOf(poolFrom(t, strings.Replace(large, `"parents": []`, `"parents": [`+gateway+`]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	st := Status{Known: true, Pods: map[string]int{"ready": 1}, pool: p}
	first := written(t, patched(st, 1, then))
	ours := `{"parentRef":{"group":"","kind":"Service","name":"picker"},"controllerName":"spokegate.io/picker","conditions":[` +
		`{"type":"Accepted","status":"True","observedGeneration":3,"lastTransitionTime":"1970-01-12T13:46:40Z","reason":"Accepted","message":"spokegate epp picks for this pool"},` +
		`{"type":"ResolvedRefs","status":"True","observedGeneration":3,"lastTransitionTime":"1970-01-12T13:46:40Z","reason":"ResolvedRefs","message":"the picker is a Service"},` +
		`{"type":"spokegate.io/Picking","status":"True","observedGeneration":3,"lastTransitionTime":"1970-01-12T13:46:40Z","reason":"WorkersReady","message":"workers can be picked"}]}`
	// JSON without blanks is all that becomes of the others' entries.
	if diff := cmp.Diff([]string{"7", strings.ReplaceAll(gateway, "[1, 2.50]", "[1,2.50]"), ours}, first); diff != "" {
		t.Fatal(diff)
	}
	p.status = json.RawMessage(`{"parents":[` + ours + `,` + gateway + `]}`)
	if patch := patched(st, 5, now); patch != nil {
		t.Errorf("written again: %s", patch)
	}
	// What has not changed keeps its time.
	second := written(t, patched(st, 0, now))
	want := strings.NewReplacer(`"spokegate.io/Picking","status":"True","observedGeneration":3,"lastTransitionTime":"1970-01-12T13:46:40Z","reason":"WorkersReady","message":"workers can be picked"`,
		`"spokegate.io/Picking","status":"False","observedGeneration":3,"lastTransitionTime":"1970-01-24T03:33:20Z","reason":"NoWorkerAnswers","message":"pods are ready, and no worker of them answers at port 8000"`).Replace(ours)
	if diff := cmp.Diff(want, second[len(second)-1]); diff != "" {
		t.Error(diff)
	}
	// Another picker is named: the entry goes with it. None is: it goes.
	p.picker = &PickerRef{Kind: "Other", Name: "else"}
	third := written(t, patched(st, 1, now))
	if len(third) != 3 || !strings.Contains(third[2], `"kind":"Other","name":"else"`) || !strings.Contains(third[2], `"reason":"InvalidExtensionRef","message":"endpointPickerRef: Other: want a Service"`) {
		t.Errorf("%q", third)
	}
	p.picker = nil
	if last := written(t, patched(st, 1, now)); len(last) != 2 || strings.Contains(last[1], "spokegate.io") {
		t.Errorf("%q", last)
	}
	p.status = json.RawMessage(`{"parents":[` + gateway + `]}`)
	if patch := patched(st, 1, now); patch != nil {
		t.Errorf("a pool without a picker: %s", patch)
	}
	p.picker, p.status = &PickerRef{Kind: "Service", Name: "picker"}, nil
	if lines := written(t, patched(st, 1, now)); len(lines) != 2 {
		t.Errorf("a pool without a status: %q", lines)
	}
}

func TestPicking(t *testing.T) {
	p := &pool{selector: "a=b", ports: []int32{1, 2}}
	for _, step := range []struct {
		st       Status
		pickable int
		want     string
	}{
		{Status{}, 0, "NoPodsMatch: no pod has the labels a=b"},
		{Status{Pods: map[string]int{"not_ready": 2}}, 0, "NoPodReady: pods match, and none of them is ready"},
		{Status{Pods: map[string]int{"left_out": 2}, Problems: []string{"pod a is left out"}}, 0, "PodsLeftOut: pod a is left out"},
		{Status{Pods: map[string]int{"ready": 1}, undeclared: []int32{1, 2}}, 0, "TargetPortNotDeclared: no worker answers, and no ready pod declares port 1, 2"},
		{Status{Pods: map[string]int{"ready": 1}}, 0, "NoWorkerAnswers: pods are ready, and no worker of them answers at port 1, 2"},
		{Status{Pods: map[string]int{"ready": 1}, undeclared: []int32{1}}, 1, "WorkersReady: workers can be picked"},
		{Status{}, 1, "WorkersReady: workers can be picked"}, // of shims that join
	} {
		step.st.pool = p
		yes, reason, message := step.st.picking(step.pickable)
		if got := reason + ": " + message; got != step.want || yes != (step.pickable > 0) {
			t.Errorf("%v %s, want %s", yes, got, step.want)
		}
	}
}
