package router

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

var explainedForm = regexp.MustCompile(`^\S+( rank \d+)?: overlap (\d+)(?: with \d+ by the shared pool)?(?: counting (\S+))?(?:, missing (\d+))?, prefill (\S+), decode (\d+), requests (\d+), cost (\S+?)(?:,| \(|$)`)

// recompute does what a person would with an explanation: from what each line tells, its cost follows.
func recompute(t testing.TB, how policy.Routing, text string) {
	t.Helper()
	var blocks int
	if _, err := fmt.Sscanf(text, "%d blocks;", &blocks); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	main, prefills, _ := strings.Cut(text, "prefill elsewhere, where")
	elsewhere := math.NaN()
	for i, line := range strings.Split(strings.TrimSpace(prefills), "\n") {
		if i > 0 && !strings.Contains(line, ", busy: ") && math.IsNaN(elsewhere) {
			elsewhere = costOf(t, how, blocks, line, math.NaN())
		}
	}
	for line := range strings.Lines(main) {
		if strings.Contains(line, ": overlap ") {
			costOf(t, how, blocks, strings.TrimSpace(line), elsewhere)
		}
	}
}

// costOf recomputes a line, and wants what it says.
func costOf(t testing.TB, how policy.Routing, blocks int, line string, elsewhere float64) float64 {
	t.Helper()
	m := explainedForm.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("cannot be read: %s", line)
	}
	n := func(i int) float64 {
		f, err := strconv.ParseFloat(m[i], 64)
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		return f
	}
	held := n(2)
	if m[3] != "" {
		held = n(3)
	}
	want := how.OverlapWeight*(n(5)+how.MissWeight*(float64(blocks)-held)) + n(6) + how.ActiveWeight*n(7)
	if m[4] != "" {
		want = elsewhere + how.OverlapWeight*n(5) + n(6) + how.ActiveWeight*n(7) + n(4)
	}
	if strings.Contains(line, "the session was here last") {
		want -= how.AffinityWeight * float64(blocks)
	}
	if got := n(8); !(math.Abs(got-want) <= 1e-3+1e-4*math.Abs(want)) {
		t.Fatalf("costs %v, recomputed %v: %s", got, want, line)
	}
	return n(8)
}
