package limits_test

import (
	"net"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/limits"
)

func TestParseRedisURL(t *testing.T) {
	for _, c := range []struct {
		url, addrs, user string
		db               int
		tls, cluster     bool
	}{
		{url: "redis://localhost", addrs: "localhost:6379"},
		{url: "redis://10.0.0.1:7000/3", addrs: "10.0.0.1:7000", db: 3},
		{url: "rediss://door:se%20cret@[::1]:6380/", addrs: "[::1]:6380", user: "door", tls: true},
		{url: "unix:///run/redis.sock", addrs: "/run/redis.sock"},
		{url: "unix:///run/a,b@c.sock", addrs: "/run/a,b@c.sock"},
		{url: "redis://a:7000,b,[::1]:7002", addrs: "a:7000 b:6379 [::1]:7002", cluster: true},
		{url: "rediss://u:x%2C@a:7000,b:7001/0", addrs: "a:7000 b:7001", user: "u", tls: true, cluster: true},
		{url: "redis://a:7000?cluster=true", addrs: "a:7000", cluster: true},
		{url: "redis://a,b/?cluster=true", addrs: "a:6379 b:6379", cluster: true},
	} {
		o, err := limits.ParseRedisURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if strings.Join(o.Addrs, " ") != c.addrs || o.Username != c.user || o.DB != c.db || (o.TLSConfig != nil) != c.tls || o.IsClusterMode != c.cluster {
			t.Errorf("%s: %s, user %q, db %d, TLS %v, cluster %v", c.url, o.Addrs, o.Username, o.DB, o.TLSConfig != nil, o.IsClusterMode)
		}
	}
	if o, err := limits.ParseRedisURL("redis://:p%40ss@h"); err != nil || o.Password != "p@ss" {
		t.Errorf("password: %v", err)
	}
}

func TestParseRedisURLRefuses(t *testing.T) {
	for url, want := range map[string]string{
		"":                          "does not begin with redis://",
		"localhost:6379":            "does not begin with redis://",
		"10.0.0.1:6379":             "does not begin with redis://", // which alone is no URL at all
		"[::1]:6379":                "does not begin with redis://",
		"redis:localhost":           "does not begin with redis://",
		"://localhost":              "malformed",
		"/run/redis.sock":           "does not begin with redis://",
		"http://h":                  "unknown scheme",
		"redis://":                  "names no host",
		"redis://:6379":             "names no host",
		"redis://h:0":               "port",
		"redis://h:99999":           "port",
		"redis://h:port":            "malformed",
		"redis://h/x":               "database",
		"redis://h/1/2":             "database",
		"redis://h?db=1":            "may follow",
		"redis://h?cluster=yes":     "may follow",
		"redis://h,":                "names no host",
		"redis://h,i:0":             "port",
		"redis://h,i:x":             "malformed",
		"redis://h,i:1:sesame":      "malformed",
		"redis://h,i/1":             "no database but 0",
		"redis://h/1?cluster=true":  "no database but 0",
		"unix:///s?cluster=true":    "no socket",
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
		{"redis://h/", ""}, {"unix://", "/s"}, {"rediss://u:p@[", "]:1/2"}, {"redis://h?", ""}, {"redis://a,", ",b"},
		{"redis://u:", "@a:1,b:2"}, {"redis://a:", ",b?cluster=true"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "Se5ame"
		o, err := limits.ParseRedisURL(before + password + after)
		if err == nil {
			for _, addr := range o.Addrs {
				if host, port, err := net.SplitHostPort(addr); addr[0] != '/' && (err != nil || host == "" || port == "") {
					t.Errorf("%q is taken as %q", before+password+after, addr)
				}
			}
			if len(o.Addrs) == 0 {
				t.Errorf("%q is taken as nothing", before+password+after)
			}
			return
		}
		if o != nil || strings.Contains(strings.ToLower(err.Error()), strings.ToLower(password)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
