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

// TestHelpHasNoSecret of the environment, which gives some flags their defaults.
func TestHelpHasNoSecret(t *testing.T) {
	for name, value := range map[string]string{"SPOKEGATE_REDIS": "redis://:s3cret@stores:6379", "SPOKEGATE_HUB_DB": "postgres://hub:s3cret@db/hub"} {
		t.Setenv(name, value)
	}
	for role, want := range map[string]string{"door": "redis://…@stores:6379", "doctor": "redis://…@stores:6379", "hub": "postgres://…@db/hub"} {
		text := captured(t, func() error { run(context.Background(), []string{role, "-h"}); return nil })
		if strings.Contains(text, "s3cret") || !strings.Contains(text, want) {
			t.Errorf("%s -h:\n%s", role, text)
		}
	}
}
