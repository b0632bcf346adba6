package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spokegate/spokegate/hub/api"
)

// askFlags are how a command finds the hub, and what it shows there.
type askFlags struct {
	url       string
	tokenFile string
	ca        string
	output    string
}

func (h *askFlags) register(f *flag.FlagSet) {
	f.StringVar(&h.url, "hub", cmp.Or(os.Getenv("SPOKEGATE_HUB"), "http://127.0.0.1:9700"), "`URL` of the hub's API ($SPOKEGATE_HUB)")
	f.StringVar(&h.tokenFile, "token-file", cmp.Or(os.Getenv("SPOKEGATE_HUB_TOKEN_FILE"), defaultTokenFile), "`file` with the token that the hub wants ($SPOKEGATE_HUB_TOKEN_FILE)")
	f.StringVar(&h.ca, "hub-ca", os.Getenv("SPOKEGATE_HUB_CA"), "`file` with the PEM certificates of the authorities that vouch for the hub; empty: this machine's ($SPOKEGATE_HUB_CA)")
	f.StringVar(&h.output, "o", "text", "text, or json for scripts")
}

// defaultTokenFile is where a hub of this folder left its first token.
var defaultTokenFile = filepath.Join(defaultHubDir, "admin.token")

// open reads the files.
func (h *askFlags) open() (*hubClient, error) {
	u, err := url.Parse(h.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("-hub %q: want an address such as https://hub.example.com:9700", h.url)
	}
	token, err := os.ReadFile(h.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("the hub wants a token, and there is none: name its file with -token-file or $SPOKEGATE_HUB_TOKEN_FILE; "+
			"the hub wrote the first one into admin.token of its -dir: %w", err)
	}
	if u.Scheme == "http" && !onThisMachine(hostPort(u)) {
		fmt.Fprintf(os.Stderr, "warning: the token goes to %s unencrypted\n", u.Host)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if h.ca != "" {
		pem, err := os.ReadFile(h.ca)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-hub-ca: %s holds no certificate of an authority in PEM", h.ca)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &hubClient{base: strings.TrimSuffix(h.url, "/"), token: strings.TrimSpace(string(token)), json: h.output == "json",
		http: &http.Client{Timeout: hubPatience, Transport: transport, CheckRedirect: stay}}, nil
}

// stay follows nobody elsewhere: a hub sends nobody away, and a token is for it alone.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// hubPatience is how long an answer may take: a policy of a million keys is checked whole.
const hubPatience = 2 * time.Minute

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// hubClient asks a hub.
type hubClient struct {
	base, token string
	json        bool // answers are printed as they came
	http        *http.Client
}

// refusal is a hub's no.
type refusal struct {
	api.Problem
}

// Error has what is wrong, each thing on a line of its own.
func (r refusal) Error() string {
	var b strings.Builder
	b.WriteString(r.Detail)
	for _, f := range r.Faults {
		b.WriteString("\n  " + strings.TrimPrefix(f.Path+": ", ": ") + f.Text)
	}
	switch r.Status {
	case http.StatusUnauthorized:
		b.WriteString("\n  Is it the right -token-file?")
	case http.StatusInternalServerError:
		b.WriteString("\n  In the hub's log it is request " + r.RequestID)
	}
	return b.String()
}

// missing says that the hub knows no such thing.
func missing(err error) bool {
	var r refusal
	return errors.As(err, &r) && r.Status == http.StatusNotFound
}

// ask sends in as JSON, if it is anything, and reads the answer into out.
func (c *hubClient) ask(ctx context.Context, method, path string, in, out any, headers ...string) error {
	var sent []byte
	kind := ""
	if in != nil {
		var err error
		if sent, err = json.Marshal(in); err != nil {
			return err
		}
		kind = "application/json"
	}
	body, err := c.send(ctx, method, path, kind, sent, headers...)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("what answers at %s is no hub: %w", c.base, err)
	}
	return nil
}

// send sends a body of a media type, if there is one.
func (c *hubClient) send(ctx context.Context, method, path, kind string, sent []byte, headers ...string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.http.Do(req)
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		return nil, fmt.Errorf("the certificate at %s is of an authority that this machine does not know: name its file with -hub-ca or $SPOKEGATE_HUB_CA: %w", c.base, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no hub answers at %s; is it running, and is -hub right? %w", c.base, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("the hub's answer broke off; whether it was done, `spokegate revision list` tells: %w", err)
	}
	if res.StatusCode < 300 {
		return body, nil
	}
	var r refusal
	if json.Unmarshal(body, &r.Problem) != nil || r.Detail == "" {
		return nil, fmt.Errorf("%s answers %s, which is no hub's answer", c.base, res.Status)
	}
	return nil, r
}

// pageSize is what is asked for at a time.
const pageSize = "1000"

// all reads every page of a list.
func all[T any](ctx context.Context, c *hubClient, path string, query url.Values) (items []T, err error) {
	query.Set("limit", pageSize)
	for {
		var page api.List[T]
		if err := c.ask(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == "" {
			return items, nil
		}
		query.Set("after", page.Next)
	}
}
