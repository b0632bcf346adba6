package limits_test

import (
	"strings"
	"testing"

	"github.com/spokegate/spokegate/limits"
)

func TestParseRedisURL(t *testing.T) {
	for _, c := range []struct {
		url, network, addr, user string
		db                       int
		tls                      bool
	}{
		{url: "redis://localhost", network: "tcp", addr: "localhost:6379"},
		{url: "redis://10.0.0.1:7000/3", network: "tcp", addr: "10.0.0.1:7000", db: 3},
		{url: "rediss://door:se%20cret@[::1]:6380/", network: "tcp", addr: "[::1]:6380", user: "door", tls: true},
		{url: "unix:///run/redis.sock", network: "unix", addr: "/run/redis.sock"},
	} {
		o, err := limits.ParseRedisURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if o.Network != c.network || o.Addr != c.addr || o.Username != c.user || o.DB != c.db || (o.TLSConfig != nil) != c.tls {
			t.Errorf("%s: %s %s, user %q, db %d, TLS %v", c.url, o.Network, o.Addr, o.Username, o.DB, o.TLSConfig != nil)
		}
	}
	if o, err := limits.ParseRedisURL("redis://:p%40ss@h"); err != nil || o.Password != "p@ss" {
		t.Errorf("password: %v", err)
	}
}

func TestParseRedisURLRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"":                          "no scheme",
		"localhost:6379":            "nothing may follow", // localhost is the scheme of that
		"/run/redis.sock":           "no scheme",
		"http://h":                  "unknown scheme",
		"redis://":                  "names no host",
		"redis://:6379":             "names no host",
		"redis://h:0":               "port",
		"redis://h:99999":           "port",
		"redis://h:port":            "malformed",
		"redis://h/x":               "database",
		"redis://h/1/2":             "database",
		"redis://h?db=1":            "nothing may follow",
		"unix://run/redis.sock":     "absolute",
		"unix:///":                  "absolute",
		"redis://u:sesame#x@h":      "malformed",
		"redis://u:sesame%zz@h":     "malformed",
		"redis://u:sesame@h:port/0": "malformed",
		"ftp://u:sesame@h":          "unknown scheme",
		"redis://u:sesame@h/x":      "database",
	} {
		_, err := limits.ParseRedisURL(url)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want redis://") {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: tells the password, or is not one line: %v", url, err)
		}
		if _, err := limits.NewRedis(limits.RedisConfig{URL: url}); err == nil {
			t.Errorf("%s: taken", url)
		}
	}
	if _, err := limits.NewRedis(limits.RedisConfig{URL: "redis://h", Spoke: "a}b"}); err == nil || !strings.Contains(err.Error(), "braces") {
		t.Errorf("braces: %v", err)
	}
}

// Wherever a password stands in what is given, no error tells it.
func FuzzParseRedisURL(f *testing.F) {
	for _, s := range [][2]string{{"redis://u:", "@h"}, {"redis://:", ""}, {"redis://h:", "/0"}, {"redis://u:%", "%zz@h"}, {"", "@h:1"},
		{"redis://h/", ""}, {"unix://", "/s"}, {"rediss://u:p@[", "]:1/2"}, {"redis://h?", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "Se5ame"
		o, err := limits.ParseRedisURL(before + password + after)
		if err == nil {
			if o.Addr == "" || o.Network != "tcp" && o.Network != "unix" {
				t.Errorf("%q is taken as %s %q", before+password+after, o.Network, o.Addr)
			}
			return
		}
		if o != nil || strings.Contains(strings.ToLower(err.Error()), strings.ToLower(password)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
