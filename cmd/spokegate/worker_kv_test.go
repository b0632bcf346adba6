package main

import "testing"

func TestWhatPickersAreTold(t *testing.T) {
	here, away := []string{"127.0.0.1:8090", "unix:/run/fleet.sock"}, []string{"127.0.0.1:8090", "door-2:8090"}
	for _, c := range []struct {
		listened, reached string
		doors             []string
		want              string
	}{
		{"127.0.0.1:7001", "127.0.0.1:0", here, "127.0.0.1:7001"},
		{"127.0.0.1:7001", "10.0.0.7:8080", here, "127.0.0.1:7001"},
		{"127.0.0.1:7001", "10.0.0.7:8080", away, ""},
		{"[::1]:7001", "10.0.0.7:8080", away, ""},
		{"10.0.0.8:7001", "10.0.0.7:8080", away, "10.0.0.8:7001"},
		{"[::]:7001", "10.0.0.7:8080", away, "10.0.0.7:7001"},
		{"0.0.0.0:7001", "[2001:db8::1]:8080", away, "[2001:db8::1]:7001"},
	} {
		got, err := blocksAddress(c.listened, c.reached, c.doors)
		if got != c.want || err != nil {
			t.Errorf("listens on %s, is reached at %s, doors %q: told %q, %v, want %q", c.listened, c.reached, c.doors, got, err, c.want)
		}
	}
	for _, reached := range []string{"0.0.0.0:8080", "[::]:8080", ":8080"} {
		if got, err := blocksAddress("[::]:7001", reached, here); err == nil {
			t.Errorf("listens everywhere, is reached at %s: told %q", reached, got)
		}
	}
}
