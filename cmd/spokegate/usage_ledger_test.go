package main

import (
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage/ledger"
)

// TestEveryLedgerFlagIsDocumented: docs/ledger.md has each of its flags, and no other.
func TestEveryLedgerFlagIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	f := flag.NewFlagSet("usage ledger", 0)
	new(ledgerFlags).register(f)
	_, table, _ := strings.Cut(string(text), "| flag of `usage ledger` |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]bool{}
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(first, -1) {
			told[m[1]] = true
			if f.Lookup(m[1]) == nil {
				t.Errorf("the table has -%s, which is no such flag", m[1])
			}
		}
	}
	f.VisitAll(func(f *flag.Flag) {
		if !told[f.Name] {
			t.Errorf("the table lacks -%s: %s", f.Name, f.Usage)
		}
	})
}

func TestLedgerFlags(t *testing.T) {
	t.Setenv("SPOKEGATE_KAFKA", "")
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, []byte(strings.Repeat("x", 20)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                "say where records come from",
		"-spools a -kafka b:1":            "one or the other",
		"-kafka b":                        "is no broker",
		"-spools a -listen :9600":         "want a -token-file",
		"-spools a -listen 10.0.0.1:9600": "want a -token-file",
		"-spools a -token-file /nowhere":  "-token-file: ",
		"-spools a -kafka-tls":            "of no use without -kafka",
		"-spools a":                       "",
		"-kafka b:1 -token-file " + token: "",
		"-spools a -listen :1 -token-file " + token: "",
	} {
		f := flag.NewFlagSet("usage ledger", flag.ContinueOnError)
		var flags ledgerFlags
		flags.register(f)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := flags.check(f)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestLedgerReport(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for want, s := range map[string]ledger.Status{
		"503 FAIL database: written to not yet\nFAIL records: looked for not yet\n": {},
		"200 ok   database: written to 2s ago\nok   records: looked for 3s ago\nnote records: 7 still to read\nnote records: 9 were removed before they were read\n": {
			Committed: now.Add(-2 * time.Second), Feed: ledger.FeedStatus{Looked: now.Add(-3 * time.Second), Pending: 7, Skipped: 9}},
		"503 FAIL database: the disk is full\nok   records: away\n": {
			Committed: now.Add(-2 * time.Minute), Err: "the disk is full", Feed: ledger.FeedStatus{Looked: now, Err: "away"}},
	} {
		w := httptest.NewRecorder()
		ledgerReport(s, now).write(w)
		if got := strings.TrimSpace(w.Result().Status[:3]) + " " + w.Body.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}
