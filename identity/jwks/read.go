package jwks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// answer is a key set as it was read.
type answer struct {
	data      []byte
	etag      string
	fresh     time.Duration // until it should be read again
	unchanged bool          // as it was read before; data is empty then
}

const (
	fetchTimeout = 10 * time.Second // for all of one answer
	mostHops     = 3
)

func newClient(rt http.RoundTripper) *http.Client {
	if rt == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		t.MaxIdleConnsPerHost, t.IdleConnTimeout = 1, time.Minute
		rt = t
	}
	return &http.Client{Transport: rt, Timeout: fetchTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" || len(via) > mostHops {
			return errors.New("led away from https, or too often")
		}
		return nil
	}}
}

// address asks an issuer's address; has is what it answered before.
func (k *Keeper) address(ctx context.Context, c identity.IssuerConfig, has answer) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.JWKSURL, nil)
	if err != nil {
		return answer{}, err
	}
	if req.URL.Scheme != "https" { // keys over plain HTTP are anybody's
		return answer{}, fmt.Errorf("%s: want an https address", c.JWKSURL)
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	if has.etag != "" {
		req.Header.Set("If-None-Match", has.etag)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	out := answer{etag: resp.Header.Get("ETag"), fresh: k.pace.freshness(resp.Header.Get("Cache-Control"))}
	if resp.StatusCode == http.StatusNotModified && has.etag != "" {
		out.unchanged = true
		return out, nil
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("%s answers %d", c.JWKSURL, resp.StatusCode)
	}
	out.data, err = readBounded(resp.Body)
	return out, err
}

// freshness is how long an answer may be believed, by its Cache-Control.
func (p pace) freshness(control string) time.Duration {
	for part := range strings.SplitSeq(strings.ToLower(control), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "no-store", "no-cache":
			return p.least
		case "max-age":
			if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				return min(max(time.Duration(n)*time.Second, p.least), p.most)
			}
		}
	}
	return p.usual
}

// file reads an issuer's file.
func (k *Keeper) file(_ context.Context, c identity.IssuerConfig, has answer) (answer, error) {
	f, err := os.Open(c.JWKSFile)
	if err != nil {
		return answer{}, err
	}
	defer f.Close()
	data, err := readBounded(f)
	return answer{data: data, fresh: k.pace.file, unchanged: err == nil && string(data) == string(has.data)}, err
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, identity.MaxJWKS+1))
	if err == nil && len(data) > identity.MaxJWKS {
		err = fmt.Errorf("longer than %d bytes", identity.MaxJWKS)
	}
	return data, err
}
