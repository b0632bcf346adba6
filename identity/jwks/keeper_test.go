package jwks

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signer is an issuer's key.
type signer struct {
	id      string
	private ed25519.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, private}
}

func (s signer) set() string {
	x := base64.RawURLEncoding.EncodeToString(s.private.Public().(ed25519.PublicKey))
	return fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, s.id, x)
}

func (s signer) token(t *testing.T) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "https://id", "aud": "door", "sub": "alice", "team": "t",
		"exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = s.id
	text, err := token.SignedString(s.private)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// idp is an issuer's server, whose answer tests set.
type idp struct {
	*httptest.Server
	mu     sync.Mutex
	asked  int
	answer http.HandlerFunc
}

func newIDP(t *testing.T) *idp {
	p := &idp{}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked++
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(p.Close)
	return p
}

func (p *idp) set(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *idp) asks() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// text answers with a set and its ETag, and 304 to who has it.
func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		etag := fmt.Sprintf("%x", sha256.Sum256([]byte(body)))
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, body)
	}
}

func broken(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// rig is a keeper that runs, impatiently.
type rig struct {
	*Keeper
	issuers *identity.Issuers
	reg     *prometheus.Registry
}

func start(t *testing.T, p *idp, change func(*pace)) *rig {
	t.Helper()
	r := &rig{issuers: &identity.Issuers{}, reg: prometheus.NewRegistry()}
	o := Options{Log: slog.New(slog.DiscardHandler), Registerer: r.reg}
	if p != nil {
		o.Transport = p.Client().Transport
	}
	r.Keeper = New(r.issuers, o)
	r.pace = pace{file: time.Millisecond, least: time.Millisecond, most: 20 * time.Millisecond, usual: 2 * time.Millisecond,
		missing: time.Millisecond, retry: time.Millisecond, retried: 5 * time.Millisecond}
	if change != nil {
		change(&r.pace)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func config(url, file string) identity.IssuerConfig {
	return identity.IssuerConfig{Name: "corp", Issuer: "https://id", Audience: "door", JWKSURL: url, JWKSFile: file, TeamClaim: "team"}
}

func eventually(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !fact(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (r *rig) takes(t *testing.T, s signer) func() bool {
	token := s.token(t)
	return func() bool {
		_, err := r.issuers.Verify(token, time.Now())
		return err == nil
	}
}

func TestKeysFollowTheIssuer(t *testing.T) {
	p, first, second := newIDP(t), newSigner(t, "1"), newSigner(t, "2")
	p.set(broken)
	r := start(t, p, nil)
	r.Follow([]identity.IssuerConfig{config(p.URL, "")})
	eventually(t, "the problem is told", func() bool { return strings.Contains(r.Status()[0].Problem, "500") })
	if _, err := r.issuers.Verify(first.token(t), time.Now()); !errors.Is(err, identity.ErrNoKeys) {
		t.Fatalf("without keys: %v", err)
	}
	p.set(text(first.set()))
	eventually(t, "the first key is taken", r.takes(t, first))
	asked := p.asks()
	eventually(t, "asked again, and unchanged", func() bool {
		return p.asks() > asked+3 && testutil.ToFloat64(r.metrics.reads.WithLabelValues("corp", "unchanged")) > 2
	})
	p.set(text(second.set()))
	eventually(t, "the second key is taken", r.takes(t, second))
	if r.takes(t, first)() {
		t.Error("the first is still taken")
	}
	// Away, or talking nonsense: the last good keys stay.
	for name, answer := range map[string]http.HandlerFunc{
		"broken": broken,
		"html":   text("<html>this is not a key set, but long enough</html>"),
		"empty":  text(`{"keys":[],"padding":"padding padding padding padding"}`),
		"huge":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, identity.MaxJWKS+2)) },
		"led to plain HTTP": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"led in a circle":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, p.URL, http.StatusFound) },
		"304 out of the blue": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	} {
		failed := testutil.ToFloat64(r.metrics.reads.WithLabelValues("corp", "failed"))
		p.set(answer)
		eventually(t, name+" is counted", func() bool {
			return testutil.ToFloat64(r.metrics.reads.WithLabelValues("corp", "failed")) > failed+1
		})
		if st := r.Status()[0]; !r.takes(t, second)() || st.Keys != 1 || st.Problem == "" {
			t.Errorf("%s: the second key is gone: %+v", name, st)
		}
	}
	p.set(text(first.set()))
	eventually(t, "the first key is back", r.takes(t, first))
	if st := r.Status()[0]; st.Problem != "" || st.ReadAt.IsZero() || st.Source != p.URL {
		t.Errorf("%+v", st)
	}
}

// TestAnUnknownKeyIsAskedFor: not only when its time has come, and not at every token.
func TestAnUnknownKeyIsAskedFor(t *testing.T) {
	p, first, second := newIDP(t), newSigner(t, "1"), newSigner(t, "2")
	p.set(text(first.set()))
	r := start(t, p, func(p *pace) { p.usual = time.Hour })
	r.Follow([]identity.IssuerConfig{config(p.URL, "")})
	eventually(t, "the first key is taken", r.takes(t, first))
	p.set(text(second.set()))
	eventually(t, "the second key is asked for", r.takes(t, second))
	if n := p.asks(); n > 5 { // each key may have been asked for once more while the answer was on its way
		t.Errorf("asked %d times", n)
	}

	slow := start(t, p, func(p *pace) { p.usual, p.missing = time.Hour, time.Hour })
	slow.Follow([]identity.IssuerConfig{config(p.URL, "")})
	eventually(t, "the second key is taken", slow.takes(t, second))
	asked := p.asks()
	for range 100 {
		_, _ = slow.issuers.Verify(first.token(t), time.Now())
	}
	if n := p.asks(); n != asked {
		t.Errorf("a hundred tokens made it ask %d times", n-asked)
	}
}

func TestKeysFollowTheFile(t *testing.T) {
	first, second := newSigner(t, "1"), newSigner(t, "2")
	path := filepath.Join(t.TempDir(), "jwks.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, nil, nil)
	r.Follow([]identity.IssuerConfig{config("", path)})
	eventually(t, "the file is missed", func() bool { return strings.Contains(r.Status()[0].Problem, "no such file") })
	write(first.set())
	eventually(t, "the first key is taken", r.takes(t, first))
	write("{")
	eventually(t, "the broken file is told", func() bool { return r.Status()[0].Problem != "" })
	if !r.takes(t, first)() {
		t.Error("a broken file took the key away")
	}
	write(second.set())
	eventually(t, "the second key is taken", r.takes(t, second))
}

func TestIssuersComeAndGo(t *testing.T) {
	p, key := newIDP(t), newSigner(t, "1")
	p.set(text(key.set()))
	r := start(t, p, nil)
	c := config(p.URL, "")
	for range 3 {
		r.Follow([]identity.IssuerConfig{c})
		eventually(t, "the key is taken", r.takes(t, key))
		r.Follow(nil)
		if r.takes(t, key)() || len(r.Status()) != 0 {
			t.Fatal("still trusted")
		}
		r.Follow([]identity.IssuerConfig{c}) // at once, before anybody has noticed
		eventually(t, "the key is taken again", r.takes(t, key))
		other := c
		other.TeamClaim = "sub"
		r.Follow([]identity.IssuerConfig{other})
		eventually(t, "the key is taken of the other", r.takes(t, key))
	}
	r.Follow(nil)
	if n, err := testutil.GatherAndCount(r.reg); err != nil || n != 0 {
		t.Errorf("%d series are left: %v", n, err)
	}
	if n := p.asks(); n < 6 {
		t.Errorf("asked %d times", n)
	}
}

func TestPlainHTTPIsNotAsked(t *testing.T) {
	k := New(&identity.Issuers{}, Options{})
	if _, err := k.address(context.Background(), config("http://127.0.0.1:1/", ""), answer{}); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("got %v", err)
	}
}

func TestFreshness(t *testing.T) {
	for control, want := range map[string]time.Duration{
		"": 5 * time.Minute, "public": 5 * time.Minute, "max-age=600": 10 * time.Minute, "public, Max-Age=600": 10 * time.Minute,
		"max-age=0": time.Minute, "no-cache": time.Minute, "no-store, max-age=600": time.Minute,
		"max-age=86400": time.Hour, "max-age=-1": 5 * time.Minute, "max-age=x": 5 * time.Minute, "max-age=99999999999999999999": 5 * time.Minute,
	} {
		if got := usualPace.freshness(control); got != want {
			t.Errorf("%q: %v, want %v", control, got, want)
		}
	}
}
