package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/policy"
)

func runKey(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("key", args, map[string]role{
		"new": newKey, "create": createKey, "list": listKeys, "show": keyNoun.show, "rotate": rotateKey, "revoke": revokeHubKey, "delete": keyNoun.delete, "apply": keyNoun.apply,
	})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// newKey prints a key once, and the line that a policy keeps of it.
func newKey(_ context.Context, args []string) error {
	f := flag.NewFlagSet("key new", flag.ContinueOnError)
	id := f.String("id", "NAME", "the key's `id` in the policy")
	team := f.String("team", "TEAM", "the `team` that it belongs to")
	output := f.String("o", "text", "text or json")
	if err := parse(f, args); err != nil {
		return err
	}
	for name, value := range map[string]string{"id": *id, "team": *team} {
		if bad := policy.BadID(value); bad != "" {
			return fmt.Errorf("-%s %q %s", name, value, bad)
		}
	}
	secret, hash := identity.NewKey()
	switch *output {
	case "json":
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"key": secret, "sha256": hash.String()})
	case "text":
		fmt.Printf("key, shown this once:   %s\nfor the policy's keys:  - {id: %s, team: %s, sha256: %q}\n", secret, *id, *team, hash)
		return nil
	}
	return fmt.Errorf("-o %q: want text or json", *output)
}
