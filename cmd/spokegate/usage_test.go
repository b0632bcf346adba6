package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
	"github.com/spokegate/spokegate/usage/balance"
)

// command runs one in this process, and returns what it printed.
func command(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	printed := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(r)
		printed <- b
	}()
	code = run(context.Background(), args)
	os.Stdout = stdout
	w.Close()
	return string(<-printed), code
}

// journaled keeps records in the spool of a source.
func journaled(t *testing.T, dir, source string, list ...*usagev1.Record) {
	t.Helper()
	s, err := usage.Open(filepath.Join(dir, "spool"), source, usage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		s.Append(r)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// told are the three records of a request.
func told(admission string, tokens int64) (admitted, used, served *usagev1.Record) {
	at := timestamppb.New(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))
	admitted = &usagev1.Record{Id: usage.AdmittedID(admission), Kind: usage.KindAdmitted, Admission: admission, Team: "research", Key: "k", AdmittedAt: at, ClientRequestId: "=1+1"}
	used = proto.CloneOf(admitted)
	used.Id, used.Kind, used.Outcome, used.CountedFrom = usage.UsageID(admission), usage.KindUsage, usage.OutcomeComplete, usage.CountedEngine
	used.CompletionTokens, used.EndedAt, used.Anomalies, used.Status = &tokens, at, []string{"a", "b"}, proto.Uint32(200)
	served = &usagev1.Record{Id: usage.ServedID(admission, 1, "main"), Kind: usage.KindServed, Admission: admission, Team: "research", Key: "k",
		Outcome: used.Outcome, CountedFrom: used.CountedFrom, CompletionTokens: &tokens, EndedAt: at, Attempt: 1}
	return admitted, used, served
}

// TestSoLongAgo is told from the full hour on.
func TestSoLongAgo(t *testing.T) {
	var p past
	earliest := time.Now().Add(-49*time.Hour - 30*time.Minute)
	if err := p.Set("48h30m"); err != nil || p.Before(earliest) || p.After(time.Now().Add(-48*time.Hour-30*time.Minute)) || !p.Equal(p.Truncate(time.Hour)) || p.Location() != time.UTC {
		t.Errorf("48h30m ago is %v, %v", p, err)
	}
}

// TestReconcile follows an operator: something is missing, is repaired, and then it balances.
func TestReconcile(t *testing.T) {
	door, worker := t.TempDir(), t.TempDir()
	t.Setenv("SPOKEGATE_KAFKA", "127.0.0.1:1") // where nobody answers: a folder on the command line is meant
	a1, u1, s1 := told("a1", 10)
	a2, _, s2 := told("a2", 20)
	journaled(t, door, "door/main", a1, u1, a2)
	journaled(t, worker, "worker/w1", s1, s2)
	dirs := door + "," + worker
	reconcile := func(flags ...string) (string, int) {
		return command(t, append([]string{"usage", "reconcile", "-dir", dirs, "-as", "ops"}, flags...)...)
	}
	for _, step := range []struct {
		flags []string
		code  int
		want  string
	}{
		{nil, 1, "missing_usage door/main/"},
		{[]string{"-from", "2026-03-01T11"}, 0, "It balances: 0 admissions"},
		{[]string{"-from", "2026-03-01T10", "-to", "2026-03-01T11:00:00Z"}, 1, "It does not balance: 1 missing_usage."},
		{[]string{"-repair"}, 0, "repaired_now"},
		{nil, 0, "It balances: 2 admissions, 2 usage records, 2 served."},
		{[]string{"-repair"}, 0, "repaired_before repair/ops/"},
		{[]string{"-write-off", "worker/w9"}, 0, "It balances"},
		{[]string{"-write-off", "w9"}, 2, ""},
		{[]string{"-settle", "-1s"}, 2, ""},
		{[]string{"-from", "yesterday"}, 2, ""},
		{[]string{"-from", "-48h"}, 2, ""},
		{[]string{"-from", "2026-03-02", "-to", "2026-03-01"}, 2, ""},
		{[]string{"-as", "a/b"}, 2, ""},
		{[]string{"-cut-bound", "-1"}, 2, ""},
		{[]string{"-trust", "/nowhere"}, 2, ""},
		{[]string{"-kafka", "127.0.0.1:1"}, 1, ""},
	} {
		if out, code := reconcile(step.flags...); code != step.code || !strings.Contains(out, step.want) {
			t.Errorf("%v: exit code %d\n%s", step.flags, code, out)
		}
	}
	if out, code := reconcile("-metrics", filepath.Join(t.TempDir(), "no", "such.prom")); code != 1 || !strings.Contains(out, "It balances") {
		t.Errorf("metrics that cannot be written: exit code %d\n%s", code, out)
	}
	out, code := reconcile("-json")
	var report balance.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || !report.Balanced || report.Total.Usage != 2 || report.Total.CompletionTokens != 30 {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
	if files, err := filepath.Glob(filepath.Join(door, "spool", "repair_ops", "*.log")); err != nil || len(files) != 2 {
		t.Errorf("%v, %v: who has nothing to repair leaves no trace", files, err)
	}
	if _, code := command(t, "usage", "reconcile", "-dir", t.TempDir()); code != 1 {
		t.Errorf("no spool: exit code %d", code)
	}
}

// TestReconcileTellsPrometheus: the file has what was found, of each run anew, also when that is bad.
func TestReconcileTellsPrometheus(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "balance.prom")
	a1, u1, s1 := told("a1", 10)
	a2, _, s2 := told("a2", 20)
	journaled(t, dir, "door/main", a1, u1, a2)
	journaled(t, dir, "worker/w1", s1, s2)
	for _, step := range []struct {
		flags []string
		code  int
		want  []string
	}{
		{nil, 1, []string{"spokegate_balance_balanced 0", `spokegate_balance_problems{kind="missing_usage"} 1`, `spokegate_balance_problems{kind="gap"} 0`,
			`spokegate_balance_notes{kind="repaired_now"} 0`, "spokegate_balance_admissions 2", "spokegate_balance_open 0", "spokegate_balance_run_timestamp_seconds 1."}},
		{[]string{"-repair", "-as", "ops"}, 0, []string{"spokegate_balance_balanced 1", `spokegate_balance_problems{kind="missing_usage"} 0`, `spokegate_balance_notes{kind="repaired_now"} 1`}},
		{[]string{"-to", "2026-03-01"}, 0, []string{"spokegate_balance_balanced 1", "spokegate_balance_admissions 0"}},
	} {
		if out, code := command(t, append([]string{"usage", "reconcile", "-dir", dir, "-metrics", file}, step.flags...)...); code != step.code {
			t.Errorf("%v: exit code %d\n%s", step.flags, code, out)
		}
		text, err := os.ReadFile(file)
		for _, want := range step.want {
			if err != nil || !strings.Contains(string(text), "\n"+want) {
				t.Errorf("%v: want %s in (%v)\n%s", step.flags, want, err, text)
			}
		}
	}
}

// TestKeysArePinned: what `usage keys` prints is trusted, and nothing else; and what was found is journaled when asked for.
func TestKeysArePinned(t *testing.T) {
	dir := t.TempDir()
	s, err := usage.Open(filepath.Join(dir, "spool"), "door/main", usage.Options{Checkpoint: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	admitted, used, _ := told("a1", 10)
	used.Outcome = usage.OutcomeClientCut
	s.Append(admitted)
	s.Append(used)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, code := command(t, "usage", "keys", "-dir", dir)
	if code != 0 || !strings.HasPrefix(keys, "door/main SHA256:") || strings.Count(keys, "\n") != 1 {
		t.Fatalf("exit code %d: %s", code, keys)
	}
	for text, want := range map[string]struct {
		code int
		says string
	}{
		"# ours\n\n" + keys:                             {0, "It balances: 1 admissions"},
		strings.ReplaceAll(keys, "SHA256:", "SHA256:x"): {1, "untrusted door/main/"},
		"":               {1, "untrusted door/main/"},
		"door/main":      {2, ""},
		"door SHA256:x":  {2, ""},
		"door/main x y ": {2, ""},
	} {
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := command(t, "usage", "reconcile", "-dir", dir, "-trust", file); code != want.code || !strings.Contains(out, want.says) {
			t.Errorf("%q: exit code %d\n%s", text, code, out)
		}
	}
	if out, code := command(t, "usage", "reconcile", "-dir", dir, "-publish", "-as", "ops"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	var found []*usagev1.Balance
	if _, err := usage.Read(filepath.Join(dir, "spool", "balance_ops"), func(r *usagev1.Record) error {
		if r.Kind == usage.KindBalance {
			found = append(found, r.Balance)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(found) != 3 || found[0].Of != "door/main" || found[0].Hour == nil || found[1].Hour != nil || found[2].Of != "" || !found[2].Balanced || found[2].Usage != 1 || found[2].CompletionTokens != 10 {
		t.Errorf("%v", found)
	}
	if out, code := command(t, "usage", "reconcile", "-dir", dir); code != 0 || strings.Contains(out, "balance/") {
		t.Errorf("what was found before: exit code %d\n%s", code, out)
	}
}

// TestExport: each id once, in a form that a spreadsheet cannot take for formulas.
func TestExport(t *testing.T) {
	dir := t.TempDir()
	a1, u1, _ := told("a1", 10)
	_, u2, _ := told("a2", 20)
	u1.Labels = map[string]string{"owner": "ann", "cost-center": "4711"}
	repair := proto.CloneOf(u1)
	repair.Anomalies = []string{usage.Repaired}
	journaled(t, dir, "door/main", a1, u1, u2)
	journaled(t, dir, "repair/ops", repair)
	out, code := command(t, "usage", "export", "-dir", dir)
	var ids []string
	for line := range strings.Lines(out) {
		r, err := usage.ParseJSON([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.Id+" of "+r.Source)
	}
	if got := strings.Join(ids, ", "); code != 0 || got != "a1/usage of door/main, a2/usage of door/main" {
		t.Errorf("exit code %d: %s", code, got)
	}
	out, code = command(t, "usage", "export", "-dir", dir, "-format", "csv", "-kind", "all")
	rows, err := csv.NewReader(bytes.NewReader([]byte(out))).ReadAll()
	if err != nil || code != 0 || len(rows) != 4 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	names := map[string]string{}
	for i, name := range rows[0] {
		names[name] = rows[2][i]
	}
	for name, want := range map[string]string{
		"id": "a1/usage", "sequence": "2", "team": "research", "stream": "false", "client_request_id": "'=1+1", "completion_tokens": "10",
		"prompt_tokens": "", "asked_model": "", "labels": "cost-center=4711;owner=ann", "anomalies": "a b", "status": "200", "admitted_at": "2026-03-01T10:00:00Z", "first_byte_at": "",
	} {
		if got, is := names[name]; got != want || !is {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	exportsParts(t)
	for flags, want := range map[string]int{"-format xml": 2, "-kind none": 2, "-from 2026-03-01T11": 0, "-dir /nowhere": 1} {
		args := append([]string{"usage", "export", "-dir", dir}, strings.Fields(flags)...)
		if out, code := command(t, args...); code != want || out != "" {
			t.Errorf("%s: exit code %d, %s", flags, code, out)
		}
	}
}

// exportsParts reads the records that are no request's, each by its kind, and what is derived.
func exportsParts(t *testing.T) {
	dir := t.TempDir()
	_, used, _ := told("a1", 500)
	used.Price, used.Cost = &usagev1.Price{Currency: "USD", Input: 1_250_000, Output: 10_000_000}, proto.Int64(5000)
	used.FirstByteAt = timestamppb.New(used.AdmittedAt.AsTime().Add(250 * time.Millisecond))
	used.EndedAt = timestamppb.New(used.AdmittedAt.AsTime().Add(2 * time.Second))
	journaled(t, dir, "door/main", used)
	journaled(t, dir, "rejected/door/main", &usagev1.Record{Id: "r/1", Kind: usage.KindRejected, EndedAt: used.EndedAt, Rejection: &usagev1.Rejection{Code: "=c", Limit: "key/rate", Count: 7}})
	journaled(t, dir, "worker/w1", &usagev1.Record{Id: "p/1", Kind: usage.KindProbe, CompletionTokens: proto.Int64(1), EndedAt: used.EndedAt},
		&usagev1.Record{Id: "e/1", Kind: usage.KindEngine, EndedAt: used.EndedAt, Engine: &usagev1.EngineCounters{Moment: usage.MomentFirst, PromptTokens: proto.Int64(0)}})
	for kind, want := range map[string]map[string]string{
		usage.KindUsage: {"price_currency": "USD", "price_input": "1250000", "price_cached": "0", "price_output": "10000000", "cost": "5000",
			"ttfb_ms": "250", "duration_ms": "2000", "milli_tokens_per_second": "250000", "rejection_count": "", "engine_moment": "", "attempt": "0"},
		usage.KindRejected: {"rejection_code": "'=c", "rejection_limit": "key/rate", "rejection_count": "7", "cost": "", "price_input": "", "ttfb_ms": "", "duration_ms": ""},
		usage.KindProbe:    {"completion_tokens": "1", "milli_tokens_per_second": ""},
		usage.KindEngine:   {"engine_moment": "first", "engine_prompt_tokens": "0", "engine_completion_tokens": ""},
	} {
		out, code := command(t, "usage", "export", "-dir", dir, "-format", "csv", "-kind", kind)
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if err != nil || code != 0 || len(rows) != 2 {
			t.Fatalf("%s: exit code %d, %v:\n%s", kind, code, err, out)
		}
		for name, want := range want {
			if i := slices.Index(rows[0], name); i < 0 || rows[1][i] != want {
				t.Errorf("%s: %s is column %d of %v", kind, name, i, rows[1])
			}
		}
		lines, code := command(t, "usage", "export", "-dir", dir, "-kind", kind)
		if strings.Count(lines, "\n") != 1 || code != 0 || kind == usage.KindUsage && !strings.HasSuffix(lines, `,"ttfb_ms":250,"duration_ms":2000,"milli_tokens_per_second":250000}`+"\n") {
			t.Errorf("exit code %d: %s", code, lines)
		}
		tail, code := command(t, "usage", "tail", "-dir", dir, "-kind", kind, "-follow=false")
		if strings.Count(tail, "\n") != 1 || code != 0 || !strings.HasPrefix(lines, tail[:len(tail)-2]) {
			t.Errorf("exit code %d: %s", code, tail)
		}
	}
}

// TestProgress is told in lines where there is no terminal, and not more often than it is asked to.
func TestProgress(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgress(f)
	tell := p.of("read")
	tell(1, 4)
	p.told = p.told.Add(-time.Hour)
	tell(2, 4)
	tell(3, 4)
	p.end()
	if b, err := os.ReadFile(f.Name()); err != nil || !strings.HasPrefix(string(b), "read 50 % in ") || strings.Count(string(b), "\n") != 1 {
		t.Errorf("%q, %v", b, err)
	}
}
