package main

import "testing"

func TestWhatPickersAreTold(t *testing.T) {
	for _, c := range [][3]string{
		{"127.0.0.1:7001", "", "127.0.0.1:7001"},
		{"127.0.0.1:7001", "10.0.0.7:8080", "127.0.0.1:7001"},
		{"10.0.0.8:7001", "10.0.0.7:8080", "10.0.0.8:7001"},
		{"[::]:7001", "10.0.0.7:8080", "10.0.0.7:7001"},
		{"0.0.0.0:7001", "[2001:db8::1]:8080", "[2001:db8::1]:7001"},
		{"[::]:7001", "", ""},
	} {
		got, err := blocksAddress(c[0], c[1])
		if got != c[2] || (err == nil) != (c[2] != "") {
			t.Errorf("listens on %s, advertises %q: told %q, %v", c[0], c[1], got, err)
		}
	}
}
