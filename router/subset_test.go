package router

import "testing"

func TestSubset(t *testing.T) {
	const v4, v6, name = "10.0.0.1:8000", "[2001:db8::1]:8000", "Worker-1.pool:8000"
	for _, c := range []struct {
		entries []string
		want    string // which of v4, v6, name are in
	}{
		{nil, "46n"},
		{[]string{}, ""},
		{[]string{""}, ""},
		{[]string{" , ,"}, ""},
		{[]string{"10.0.0.1:8000"}, "4"},
		{[]string{"10.0.0.1"}, "4"},
		{[]string{"10.0.0.1:8001"}, ""},
		{[]string{"10.0.0.2"}, ""},
		{[]string{"10.0.0.11:8000", "0.0.0.1"}, ""},
		{[]string{"[::ffff:10.0.0.1]:8000"}, "4"},
		{[]string{"[2001:db8::1]:8000"}, "6"},
		{[]string{"[2001:db8::1]:8001"}, ""},
		{[]string{"[2001:db8::1]"}, "6"},
		{[]string{"2001:db8::1"}, "6"},
		{[]string{"2001:0DB8:0::1"}, "6"},
		{[]string{"[2001:db8:0:0:0:0:0:1]:8000"}, "6"},
		{[]string{"2001:db8::2"}, ""},
		{[]string{"10.0.0.1:8000,[2001:db8::1]:8000"}, "46"},
		{[]string{" 10.0.0.1 , [2001:db8::1] "}, "46"},
		{[]string{"10.0.0.9:1", "10.0.0.1:8000"}, "4"},
		{[]string{"worker-1.pool:8000"}, ""}, // a worker is an address
		{[]string{"worker-1.pool"}, ""},
		{[]string{"worker-1"}, ""},
		{[]string{"10.0.0.1:99999", "[10.0.0.1", "]["}, ""},
	} {
		s, got := parseSubset(c.entries), ""
		for addr, letter := range map[string]string{v4: "4", v6: "6", name: "n"} {
			if s.has(placeOf(addr)) {
				got += letter
			}
		}
		if !sameLetters(got, c.want) {
			t.Errorf("%q: has %q, want %q", c.entries, got, c.want)
		}
	}
}

func sameLetters(a, b string) bool {
	set := func(s string) (n [256]bool) {
		for i := range len(s) {
			n[s[i]] = true
		}
		return n
	}
	return set(a) == set(b)
}

func FuzzSubset(f *testing.F) {
	for _, s := range []string{"10.0.0.1:8000", "[::1]", "a,b", "[::1%eth0]:1", "10.0.0.1:80, 10.0.0.1", ":", "[]", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// A worker named by an entry as it is written is in the subset, if the entry names one worker and a port.
		p := placeOf(s)
		if p.IsValid() && !parseSubset([]string{s}).has(p) {
			t.Errorf("%q does not match itself", s)
		}
	})
}
