package main

import (
	"context"
	"strings"
	"testing"
)

// TestEveryCommandSaysWhatItDoes: -h of each, and of what it consists of.
func TestEveryCommandSaysWhatItDoes(t *testing.T) {
	help := func(args ...string) string {
		return captured(t, func() error {
			if code := run(context.Background(), append(args, "-h")); code != 0 {
				t.Errorf("%s -h ends with %d", strings.Join(args, " "), code)
			}
			return nil
		})
	}
	for name := range roles {
		if name == "guard" { // it is for nobody but us
			continue
		}
		text := help(name)
		if !strings.Contains(text, "COMMAND -h tells its flags") {
			if !strings.Contains(text, "\nIt ") {
				t.Errorf("%s -h does not say what it does:\n%s", name, text)
			}
			continue
		}
		for _, line := range strings.Split(text, "\n") {
			sub, does, listed := strings.Cut(strings.TrimPrefix(line, "  "), " ")
			if !strings.HasPrefix(line, "  ") || !listed {
				continue
			}
			if does = strings.TrimSpace(does); does == "" || !strings.Contains(help(name, sub), "\nIt "+does+".\n") {
				t.Errorf("%s %s -h does not say what it does", name, sub)
			}
		}
	}
	for name := range eppCommands {
		if !strings.Contains(help("epp", name), "\nIt ") {
			t.Errorf("epp %s -h does not say what it does", name)
		}
	}
}
