package main

import "context"

func runEnvoy(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("envoy", args, map[string]role{"print": printEnvoy, "run": runEnvoyProcess})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}
