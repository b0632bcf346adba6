package envoy

import "testing"

// TestTheClientsAddress: who stands behind trusted proxies is known by what the farthest of them saw, and nobody else by what
// they say.
func TestTheClientsAddress(t *testing.T) {
	for _, c := range []struct {
		name  string
		hops  int
		xff   string
		wants string
	}{
		{"none trusted", 0, "", "127.0.0.1"},
		{"none trusted, one claims", 0, "203.0.113.9", "127.0.0.1"},
		{"one trusted, nothing said", 1, "", "127.0.0.1"},
		{"one trusted", 1, "203.0.113.9", "203.0.113.9"},
		{"one trusted, the client claims", 1, "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		{"two trusted", 2, "198.51.100.1, 203.0.113.9,192.0.2.1", "203.0.113.9"},
		{"two trusted, IPv6", 2, "2001:db8::7, 192.0.2.1", "2001:db8::7"},
		{"two trusted, one came", 2, "203.0.113.9", "127.0.0.1"},
		{"one trusted, garbage", 1, "here", "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startRig(t, false, func(d *Door) { d.TrustedHops = c.hops })
			claims := []string{"x-forwarded-for", c.xff, ClientAddressHeader, "198.51.100.66",
				"x-envoy-external-address", "198.51.100.66", "forwarded", "for=198.51.100.66"}
			a := r.bulk(t, r.list("a"), claims...)
			a.served(t, "a")
			if got := r.services.authz.checks.await(t, a.id, two[check])[1].source; got != c.wants {
				t.Errorf("over HTTP the client is %q, want %q", got, c.wants)
			}
			a = r.post(t, r.list("a"), claims...)
			a.served(t, "a")
			got := r.services.authz.checks.await(t, a.id, some[check])[0]
			address := got.source
			if c.hops > 0 {
				address = got.headers[ClientAddressHeader]
			} else if h, there := got.headers[ClientAddressHeader]; there {
				t.Errorf("without trusted proxies the header says %q", h)
			}
			if address != c.wants {
				t.Errorf("the client is %q, want %q", address, c.wants)
			}
			if seen, _ := r.workers["a"].got.get(a.id); seen[0].Header.Get(ClientAddressHeader) != "" {
				t.Error("the worker was told the client's address")
			}
		})
	}
}
