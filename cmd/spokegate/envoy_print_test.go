package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// gatewayOf takes the flags of `envoy print -for envoy-gateway`.
func gatewayOf(t *testing.T, args ...string) (printFlags, error) {
	t.Helper()
	var p printFlags
	f := flag.NewFlagSet("envoy print", flag.ContinueOnError)
	p.register(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return p, p.completeGateway(f)
}

// TestPrintForAGateway: the door process of a pod gets the flags that were given, and the pod's own for the rest.
func TestPrintForAGateway(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(policy, []byte("endpoints: [{name: large}, {name: small}]\nmodels: [{name: m, endpoint: large}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := gatewayOf(t, "-policy", policy, "-image", "i:1", "-fleet-plain", "-body-limit", "2097152", "-spoke", "north", "-workers", "small=svc:8000", "-workers", "third", "-redis", "redis://r:6379")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-body-limit=2097152", "-fleet-listen=0.0.0.0:8090", "-fleet-plain=true", "-ops=0.0.0.0:10001", "-redis=redis://r:6379", "-spoke=north",
		"-join-token-file=/etc/spokegate/join-token", "-policy=/etc/spokegate/policy.yaml"}
	if got := p.gateway.Sidecar.Args; !slices.Equal(got, want) {
		t.Errorf("the sidecar's flags are %q", got)
	}
	if d := p.gateway.Door; d.DoorSocket != "/var/lib/spokegate/run/door.sock" || d.BodyLimit != 2<<20 || d.Listen != "0.0.0.0:8080" {
		t.Errorf("the door is %+v", d)
	}
	if pools := p.gateway.Pools; len(pools) != 3 || pools[0].Endpoint != "large" || pools[0].Service != "" || pools[1].Service != "svc" || pools[1].Port != 8000 ||
		pools[2].Endpoint != "third" || pools[2].Service != "" {
		t.Errorf("the pools are %+v", pools)
	}
	for want, more := range map[string][]string{gatewayAdmin: nil, ownAdmin: {"-admin", ownAdmin}, "": {"-admin="}} {
		var d doorFlags
		f := flag.NewFlagSet("door", flag.ContinueOnError)
		d.register(f)
		d.registerGateway(f)
		if err := f.Parse(slices.Concat([]string{"-gateway", envoyGateway, "-dir", t.TempDir()}, p.gateway.Sidecar.Args, more)); err != nil {
			t.Fatal(err)
		}
		d.placeAdmin(f)
		if err := d.complete(); err != nil || d.envoy.Admin != want {
			t.Errorf("a door with these flags and %q: %v, admin %s, want %s", more, err, d.envoy.Admin, want)
		}
	}
}

// TestPrintRefuses what cannot be printed.
func TestPrintRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"image":            {"-fleet-plain", "-workers", "e=s:1"},
		"-fleet-plain":     {"-image", "i", "-workers", "e=s:1"},
		"by -workers":      {"-image", "i", "-fleet-plain"},
		"-trusted-hops":    {"-image", "i", "-fleet-plain", "-workers", "e=s:1", "-trusted-hops", "1"},
		"-picker":          {"-image", "i", "-fleet-plain", "-workers", "e=s:1", "-picker", "ext_proc"},
		"want addresses":   {"-host-envoy", "1.40.0", "-workers", "e=s:1"},
		"1 MiB":            {"-image", "i", "-fleet-plain", "-workers", "e=s:1", "-body-limit", "1"},
		"listen address":   {"-image", "i", "-fleet-plain", "-workers", "e=s:1", "-listen", "x"},
		"-tls-secret":      {"-image", "i", "-fleet-plain", "-workers", "e", "-tls-cert", "c", "-tls-key", "k"},
		"as redis-url":     {"-image", "i", "-fleet-plain", "-workers", "e", "-redis", "rediss://:word@r:6379"},
		"cannot do what -": {"-image", "i", "-fleet-plain", "-workers", "e=s:1", "-otlp", "c:1"},
	} {
		if _, err := gatewayOf(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v", args, want, err)
		}
	}
	for _, place := range []string{"", "=s:1", "e=", "e=s", "e=s:1,10.0.0.1:1", "e=s:x"} {
		if new(workerPlaces).Set(place) == nil {
			t.Errorf("-workers %s is taken", place)
		}
	}
}
