package main

import (
	"context"
	"flag"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
)

func runEnvoy(ctx context.Context, args []string) error {
	sub, rest, err := pickSub("envoy", args, map[string]role{"print": printEnvoy})
	if err != nil {
		return err
	}
	return sub(ctx, rest)
}

// printEnvoy shows what a door with these flags tells its Envoy: in one file what bootstrap and ADS give it in parts.
func printEnvoy(_ context.Context, args []string) error {
	var d doorFlags
	f := flag.NewFlagSet("envoy print", flag.ContinueOnError)
	d.register(f)
	bootstrap := f.Bool("bootstrap", false, "only what Envoy starts with: the door process tells it the rest")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := d.complete(); err != nil {
		return err
	}
	if *bootstrap {
		return writeYAML(d.envoy.Bootstrap())
	}
	var endpoints []string
	if d.policy != "" {
		_, snap, err := readPolicy(d.policy)
		if err != nil {
			return err
		}
		endpoints = endpointNames(snap)
	}
	return writeYAML(d.envoy.Static(fleet.New().View(), endpoints))
}

func writeYAML(m proto.Message) error {
	out, err := envoy.YAML(m)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
