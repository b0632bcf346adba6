package main

import (
	"context"
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

// checkPolicy says what is wrong with a policy and where.
func checkPolicy(_ context.Context, args []string) error {
	f := flag.NewFlagSet("policy check", flag.ContinueOnError)
	if err := parse(f, args, "FILE"); err != nil {
		return err
	}
	set, s, err := readPolicy(f.Arg(0))
	if err != nil {
		return err
	}
	fmt.Printf("%s is good: %d models, %d endpoints, %d keys\n", f.Arg(0), len(set.GetModels()), len(s.Endpoints()), s.Keys())
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
