package limits

import (
	"crypto/tls"
	"errors"
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

const urlForms = "want redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://… for TLS, unix:///PATH/TO/SOCKET, " +
	"or for a cluster redis://HOST:PORT,HOST:PORT… or redis://HOST:PORT?cluster=true"

// ParseRedisURL reads where Redis is: one server, or some nodes of a cluster, which tell of the others. Its error is one
// sentence, and never has the URL in it, which may hold a password.
func ParseRedisURL(s string) (*redis.UniversalOptions, error) {
	o, err := parseRedisURL(s)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w; %s", err, urlForms)
	}
	return o, nil
}

func parseRedisURL(s string) (*redis.UniversalOptions, error) {
	if !strings.Contains(s, "://") { // of localhost:6379, localhost would be the scheme
		return nil, errors.New("it does not begin with redis://")
	}
	first, others := splitHosts(s)
	u, err := url.Parse(first)
	if err != nil { // it quotes what it does not like
		return nil, errors.New("malformed (special characters in a user or password must be percent-encoded)")
	}
	o := &redis.UniversalOptions{Username: u.User.Username(), IsClusterMode: len(others) > 0 || u.RawQuery == "cluster=true"}
	o.Password, _ = u.User.Password()
	switch {
	case u.RawQuery != "" && u.RawQuery != "cluster=true" || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("nothing but ?cluster=true may follow the path")
	case u.Scheme == "redis" || u.Scheme == "rediss":
		return o, tcp(o, u, others)
	case u.Scheme == "unix" && o.IsClusterMode:
		return nil, errors.New("a cluster has no socket")
	case u.Scheme == "unix":
		return o, unix(o, u)
	}
	return nil, errors.New("unknown scheme")
}

// splitHosts takes all but the first host out of a URL that has a scheme.
func splitHosts(s string) (first string, others []string) {
	begin := strings.Index(s, "://") + len("://")
	end := len(s)
	if i := strings.IndexAny(s[begin:], "/?#"); i >= 0 {
		end = begin + i
	}
	begin += strings.LastIndex(s[begin:end], "@") + 1
	hosts := strings.Split(s[begin:end], ",")
	return s[:begin] + hosts[0] + s[end:], hosts[1:]
}

func tcp(o *redis.UniversalOptions, u *url.URL, others []string) error {
	addr, err := address(u)
	if err != nil {
		return err
	}
	o.Addrs = []string{addr}
	for _, host := range others {
		other, err := url.Parse("redis://" + host)
		if err != nil || other.Host != host {
			return errors.New("one of the hosts is malformed")
		}
		if addr, err = address(other); err != nil {
			return err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // the client fills in the name of each server
	}
	db := strings.Trim(u.Path, "/")
	if db == "" {
		return nil
	}
	n, err := strconv.ParseUint(db, 10, 16)
	if err != nil {
		return errors.New("the database is not a number")
	}
	if o.IsClusterMode && n > 0 {
		return errors.New("a cluster has no database but 0")
	}
	o.DB = int(n)
	return nil
}

func address(u *url.URL) (string, error) {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return "", errors.New("it names no host")
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

func unix(o *redis.UniversalOptions, u *url.URL) error {
	if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) == "/" {
		return errors.New("the path of a socket must be absolute: with three slashes after the colon")
	}
	o.Addrs = []string{u.Path}
	return nil
}

// dial makes a client that answers or fails in time: no retries (the limiter has its own way to go on) but those that follow a
// cluster's slots to where they went, and every wait bounded. It connects when it is first used.
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
	if o.IsClusterMode {
		return redis.NewClusterClient(o.Cluster()), nil
	}
	return redis.NewClient(o.Simple()), nil
}
