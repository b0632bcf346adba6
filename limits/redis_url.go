package limits

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const urlForms = "want redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://… for TLS, or unix:///PATH/TO/SOCKET"

// ParseRedisURL reads where Redis is. Its error is one sentence, and never has the URL in it, which may hold a password.
func ParseRedisURL(s string) (*redis.Options, error) {
	u, err := url.Parse(s)
	if err != nil { // it quotes what it does not like
		return nil, fmt.Errorf("redis URL: malformed (special characters in a user or password must be percent-encoded); %s", urlForms)
	}
	o := &redis.Options{Username: u.User.Username()}
	o.Password, _ = u.User.Password()
	switch {
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("redis URL: nothing may follow the path; %s", urlForms)
	case u.Scheme == "redis" || u.Scheme == "rediss":
		return checked(o, tcp(o, u))
	case u.Scheme == "unix":
		return checked(o, unix(o, u))
	case u.Scheme == "":
		return nil, fmt.Errorf("redis URL: it has no scheme; %s", urlForms)
	}
	return nil, fmt.Errorf("redis URL: unknown scheme; %s", urlForms)
}

func tcp(o *redis.Options, u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return fmt.Errorf("redis URL: it names no host; %s", urlForms)
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("redis URL: the port is not a number from 1 to 65535; %s", urlForms)
	}
	o.Network, o.Addr = "tcp", net.JoinHostPort(host, port)
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		n, err := strconv.ParseUint(db, 10, 16)
		if err != nil {
			return fmt.Errorf("redis URL: the database is not a number; %s", urlForms)
		}
		o.DB = int(n)
	}
	return nil
}

func unix(o *redis.Options, u *url.URL) error {
	if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/" {
		return fmt.Errorf("redis URL: the path of a socket must be absolute: three slashes after unix:; %s", urlForms)
	}
	o.Network, o.Addr = "unix", u.Path
	return nil
}

// dial makes a client that answers or fails in time: no retries (the limiter has its own way to go on), and every wait
// bounded. It connects when it is first used.
func dial(rawURL string, timeout time.Duration) (redis.UniversalClient, error) {
	o, err := ParseRedisURL(rawURL)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.PoolTimeout = timeout, timeout
	o.ReadTimeout, o.WriteTimeout = max(timeout, time.Second), max(timeout, time.Second) // a call's own deadline comes first
	o.ContextTimeoutEnabled = true
	o.Protocol = 2 // nothing is pushed to us, and it is not looked for
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	logging.Disable() // it would write lines of its own to stderr; whatever fails is returned to us
	return redis.NewClient(o), nil
}

// checked gives nothing beside an error.
func checked(o *redis.Options, err error) (*redis.Options, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
