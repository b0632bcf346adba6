package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/fleet"
)

// envoySide is the Envoy beside a door: its own, which it configures, or a gateway's.
type envoySide interface {
	ServerOptions() []grpc.ServerOption
	Register(*grpc.Server)
	SetEndpoints(names []string)
	Run(ctx context.Context) error
	Connected() bool
	AwaitDeath(ctx context.Context) (time.Time, error)
}

// envoyGateway is the gateway that a door can stand beside.
const envoyGateway = "envoy-gateway"

const (
	ownAdmin     = "127.0.0.1:9901"
	gatewayAdmin = "127.0.0.1:19000" // where Envoy Gateway puts its Envoys' on Kubernetes
)

// registerGateway is for doors alone: who runs an Envoy of ours is none of a gateway's.
func (d *doorFlags) registerGateway(f *flag.FlagSet) {
	f.StringVar(&d.gateway, "gateway", "", "`gateway` that configures the Envoy beside this door, as spokegate envoy print -for tells it: "+envoyGateway+
		". Empty: the door configures an Envoy of its own")
}

// placeAdmin is for a parsed command line: a gateway has its Envoys' admin page in another place than an Envoy of our own, unless
// the flag says where it is.
func (d *doorFlags) placeAdmin(f *flag.FlagSet) {
	if d.gateway == envoyGateway && !namedOf(f)["admin"] {
		d.envoy.Admin = gatewayAdmin
	}
}

// completeGateway refuses what holds for an Envoy of our own alone, rather than pass it over.
func (d *doorFlags) completeGateway() error {
	switch d.gateway {
	case "":
		return nil
	case envoyGateway:
	default:
		return fmt.Errorf("-gateway %q: want %s", d.gateway, envoyGateway)
	}
	var errs []error
	refuse := func(given bool, flag, instead string) {
		if given {
			errs = append(errs, fmt.Errorf("-gateway %s cannot do what %s asks for: docs/gateways.md%s", d.gateway, flag, instead))
		}
	}
	refuse(d.picker != pickerAdmission, "-picker", "")
	refuse(d.envoy.TrustedHops != 0, "-trusted-hops", "")
	refuse(d.envoy.Collector != "", "-otlp", "")
	refuse(d.envoy.TLSCert != "", "-tls-cert", " (a Secret has what clients see: envoy print -tls-secret)")
	refuse(d.fleetFlags.tls.Given(), "-fleet-cert", "")
	return errors.Join(errs...)
}

// newFleet is where workers join: an Envoy of our own tells which of them it knows.
func (d *doorFlags) newFleet() *fleet.Fleet {
	if d.gateway != "" {
		return fleet.NewUnacknowledged()
	}
	return fleet.New()
}

// newControl is the side of the Envoy beside the door.
func (d *door) newControl() envoySide {
	if d.gateway != "" {
		return envoy.NewForeign(d.envoy)
	}
	return envoy.NewServer(d.envoy, d.fleet, d.log, d.registry)
}
