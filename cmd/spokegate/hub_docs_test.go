package main

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheHubIsDocumented: docs/hub.md has each flag of the hub in its table and no other, and each command of people.
func TestTheHubIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/hub.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	f := flag.NewFlagSet("hub", flag.ContinueOnError)
	new(hubRoleFlags).register(f)
	_, table, _ := strings.Cut(text, "| flag of `hub` |")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(first, -1) {
			if told = append(told, m[1]); f.Lookup(m[1]) == nil {
				t.Errorf("the table has -%s, which is no flag of the hub", m[1])
			}
		}
	}
	f.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(told, f.Name) {
			t.Errorf("the table lacks -%s: %s", f.Name, f.Usage)
		}
	})
	_, commands, _ := strings.Cut(text, "## Commands")
	commands, _, _ = strings.Cut(commands, "## API")
	for _, word := range []string{"team", "model", "endpoint", "issuer", "spoke", "key", "limit", "revision", "token", "apply"} {
		if roles[word] == nil || !strings.Contains(commands, "`"+word) {
			t.Errorf("the command %s is not there, or not told of", word)
		}
	}
}
