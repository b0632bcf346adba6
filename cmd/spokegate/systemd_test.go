package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnitsStartWhatThereIs holds the flags of deploy/systemd against the roles'.
func TestUnitsStartWhatThereIs(t *testing.T) {
	roles := map[string]func(*flag.FlagSet){
		"door": new(doorFlags).register, "envoy run": new(envoyRunFlags).register, "worker": new(workerFlags).register,
		"epp": new(eppFlags).register, "hub": new(hubRoleFlags).register,
	}
	units, _ := filepath.Glob("../../deploy/systemd/*.service")
	started := map[string]bool{}
	for _, path := range units {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, line, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", ""), "\nExecStart=/usr/local/bin/spokegate ")
		line, _, _ = strings.Cut(line, "\n")
		command, rest, _ := strings.Cut(line, " -")
		if !found || roles[command] == nil {
			t.Errorf("%s starts %q", path, command)
			continue
		}
		started[command] = true
		f := flag.NewFlagSet(command, flag.ContinueOnError)
		roles[command](f)
		for _, word := range strings.Fields("-" + rest) {
			if name, is := strings.CutPrefix(word, "-"); is && f.Lookup(name) == nil {
				t.Errorf("%s: there is no flag -%s of %s", path, name, command)
			}
		}
	}
	if len(started) != len(roles) {
		t.Errorf("units are there for %v", started)
	}
}
