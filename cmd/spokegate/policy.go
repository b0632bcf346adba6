package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

func runPolicy(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("policy", args, map[string]role{"check": checkPolicy, "schema": printSchema, "revoke": revokeKey})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// checkPolicy says all that is wrong with a policy and where, a line each, as editors and CI systems read it.
func checkPolicy(_ context.Context, args []string) error {
	f := flag.NewFlagSet("policy check", flag.ContinueOnError)
	if err := parse(f, args, "FILE"); err != nil {
		return err
	}
	set, s, err := readPolicy(f.Arg(0))
	var problems policy.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, p)
		}
		return fmt.Errorf("%s is refused: mistakes: %d", f.Arg(0), len(problems))
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s is good: models: %d, endpoints: %d, teams: %d, keys: %d, issuers: %d\n", f.Arg(0), len(set.GetModels()),
		len(s.Endpoints()), len(set.GetTeams()), s.Keys(), len(s.Issuers()))
	return nil
}

// readPolicy reads and compiles a policy file.
func readPolicy(path string) (*policyv1.Set, *policy.Snapshot, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.Parse(path, data)
	if err != nil {
		return nil, nil, err
	}
	s, err := policy.Compile(set, time.Now())
	return set, s, err
}

func printSchema(_ context.Context, args []string) error {
	f := flag.NewFlagSet("policy schema", flag.ContinueOnError)
	if err := parse(f, args); err != nil {
		return err
	}
	_, err := os.Stdout.Write(policy.Schema())
	return err
}
