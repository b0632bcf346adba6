package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spokegate/spokegate/enginemetrics"
)

// Bounds of what is read of an answer, in bytes. An Envoy with thousands of clusters tells them in tens of megabytes, an API server
// its pods; all others are asked many at once.
const (
	mostRead = 128 << 20
	mostPage = 16 << 20
)

// askTime bounds one question within a check.
const askTime = 5 * time.Second

// answer is that of one HTTP request.
type answer struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState
}

// get asks an address, host:port or unix:PATH, for a path.
func get(ctx context.Context, address, path string) (answer, error) {
	return send(ctx, address, http.MethodGet, path, nil, nil)
}

// getLarge is get, of an answer of up to mostRead.
func getLarge(ctx context.Context, address, path string) (answer, error) {
	return ask(ctx, anyone, address, http.MethodGet, path, nil, nil, mostRead)
}

// anyone may answer: whose certificate it is, other checks look at.
var anyone = &tls.Config{InsecureSkipVerify: true}

// send makes one request on a connection of its own. A URL's scheme in address is followed; without one it is plain HTTP.
func send(ctx context.Context, address, method, path string, header http.Header, body io.Reader) (answer, error) {
	return ask(ctx, anyone, address, method, path, header, body, mostPage)
}

// sendTo is send, to who has the right certificate.
func sendTo(ctx context.Context, who *tls.Config, address, method, path string, header http.Header, body io.Reader) (answer, error) {
	return ask(ctx, who, address, method, path, header, body, mostPage)
}

func ask(ctx context.Context, who *tls.Config, address, method, path string, header http.Header, body io.Reader, most int64) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	scheme, at, base := parts(address)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: who,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, at) }}
	defer transport.CloseIdleConnections()
	host := at
	if strings.HasPrefix(at, "unix:") {
		host = "unix"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+host+base+path, body)
	if err != nil {
		return answer{}, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, plain(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if int64(len(data)) > most {
		return answer{}, fmt.Errorf("%s answers more than %d MiB", path, most>>20)
	}
	return answer{resp.StatusCode, resp.Header, data, resp.TLS}, err
}

// parts takes a URL, or an address, apart. at is a socket, or a host with its port.
func parts(address string) (scheme, at, base string) {
	scheme, at, isURL := strings.Cut(address, "://")
	if !isURL {
		return "http", address, ""
	}
	at, base, _ = strings.Cut(at, "/")
	at = at[strings.LastIndexByte(at, '@')+1:]
	if base = strings.TrimSuffix(base, "/"); base != "" {
		base = "/" + base
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		at = net.JoinHostPort(strings.Trim(at, "[]"), map[string]string{"http": "80", "https": "443"}[scheme])
	}
	return scheme, at, base
}

// plain takes the request's line from the front of an error: where it was sent, the finding says.
func plain(err error) error {
	if _, why, ok := strings.Cut(err.Error(), "\": "); ok && strings.Contains(err.Error(), "://") {
		return errors.New(why)
	}
	return err
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", address)
}

// opens says whether something listens there.
func opens(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// getJSON asks for an object; a page that is not there, or is something else, is an error.
func getJSON(ctx context.Context, address, path string, into any) error {
	a, err := get(ctx, address, path)
	switch {
	case err != nil:
		return err
	case a.status != http.StatusOK:
		return fmt.Errorf("%s answers %d", path, a.status)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%s is not what it should be: %w", path, err)
	}
	return nil
}

// metrics reads these names of a page in Prometheus text.
func metrics(ctx context.Context, address, path string, names ...string) (enginemetrics.Page, error) {
	a, err := get(ctx, address, path)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", path, a.status)
	}
	want := enginemetrics.Names{}
	for _, n := range names {
		want[n] = true
	}
	return enginemetrics.Read(strings.NewReader(string(a.body)), want)
}

// sum adds all samples of a name up, those with this label alone where one is given.
func sum(p enginemetrics.Page, name string, label ...string) (total float64) {
	for _, s := range p[name] {
		if len(label) != 2 || labelled(s, label[0]) == label[1] {
			total += s.Value
		}
	}
	return total
}

func labelled(s enginemetrics.Sample, name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// together calls f for each, several at once: one that does not answer must not use up the time of all.
func together[T any](list []T, f func(T)) {
	var all errgroup.Group
	all.SetLimit(32)
	for _, x := range list {
		all.Go(func() error {
			f(x)
			return nil
		})
	}
	_ = all.Wait()
}

// host is that of an address; empty: a Unix socket.
func host(address string) string {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "/") {
		return ""
	}
	_, at, _ := parts(address)
	h, _, err := net.SplitHostPort(at)
	if err != nil {
		return at
	}
	return h
}

// onLoopback says that an address is reached from its own machine alone.
func onLoopback(address string) bool {
	h := host(address)
	ip, err := netip.ParseAddr(h)
	return h == "localhost" || h == "" && !strings.HasPrefix(address, ":") || err == nil && ip.IsLoopback()
}

// here are this machine's addresses.
func here() (list []netip.Addr) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list
}

// isHere says that an address is on this machine.
func isHere(address string) bool {
	if onLoopback(address) {
		return true
	}
	if strings.HasPrefix(address, ":") {
		return true
	}
	ip, err := netip.ParseAddr(host(address))
	return err == nil && (ip.IsUnspecified() || slices.Contains(here(), ip.Unmap()))
}
