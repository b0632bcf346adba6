package main

import (
	"testing"

	"github.com/spokegate/spokegate/identity/mtls"
)

// Secrets are told to workers only where nobody can listen in.
func TestWhereSecretsMayBeTold(t *testing.T) {
	files := mtls.Files{Cert: "c", Key: "k", CA: "a"}
	for name, c := range map[string]struct {
		flags fleetFlags
		want  bool
	}{
		"a Unix socket":               {fleetFlags{listen: "unix:/run/fleet.sock"}, true},
		"a Unix socket, certificates": {fleetFlags{listen: "unix:/run/fleet.sock", tls: files}, true},
		"TLS":                         {fleetFlags{listen: "0.0.0.0:8090", tls: files}, true},
		"plain":                       {fleetFlags{listen: "0.0.0.0:8090", plain: true}, false},
		"loopback":                    {fleetFlags{listen: "127.0.0.1:8090"}, false},
	} {
		if got := c.flags.private(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
