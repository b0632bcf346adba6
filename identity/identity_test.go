package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestKeyIsFoundAgain(t *testing.T) {
	secret, h := NewKey()
	got, ok := ParseKey(secret)
	if !ok || got != h {
		t.Fatalf("ParseKey(NewKey()) = %v, %v; want %v", got, ok, h)
	}
	again, err := ParseHash(strings.ToUpper(h.String()))
	if err != nil || again != h {
		t.Fatalf("ParseHash(%q) = %v, %v", h, again, err)
	}
}

func TestGarbageIsNoKey(t *testing.T) {
	secret, _ := NewKey()
	flip := func(i int) string {
		b := []byte(secret)
		if b[i] == 'a' {
			b[i] = 'b'
		} else {
			b[i] = 'a'
		}
		return string(b)
	}
	for _, s := range []string{
		"", "nope", keyPrefix, secret + "a", secret[:len(secret)-1], " " + secret, secret + "\n",
		strings.ToUpper(secret), "sk-sx-" + secret[len(keyPrefix):], flip(len(keyPrefix)), flip(len(secret) - 1),
		keyPrefix + strings.Repeat("=", len(secret)-len(keyPrefix)),
	} {
		if _, ok := ParseKey(s); ok {
			t.Errorf("ParseKey(%q) accepted", s)
		}
	}
}

// FuzzParseKey: whatever is accepted is exactly what NewKey could have written.
func FuzzParseKey(f *testing.F) {
	secret, _ := NewKey()
	f.Add(secret)
	f.Add(secret + "a")
	f.Add("sk-sg-\x00")
	f.Fuzz(func(t *testing.T, s string) {
		if _, ok := ParseKey(s); ok && (len(s) != len(secret) || s != strings.ToLower(s)) {
			t.Errorf("accepted %q", s)
		}
	})
}

func pair() (*Minter, *Verifier) {
	m := NewMinter("door-1")
	v := NewVerifier("large")
	v.SetKey(m.Door(), m.PublicKey())
	return m, v
}

func mint(m *Minter, id string) string {
	return m.Mint(Context{Admission: id, Key: "alice", Team: "t1", Model: "cheap", Endpoint: "large", Revision: 7}, noon)
}

func TestContextTravelsWhole(t *testing.T) {
	m, v := pair()
	got, err := v.Verify(mint(m, "a-1"), noon)
	want := Context{Admission: "a-1", Door: "door-1", Key: "alice", Team: "t1", Model: "cheap", Endpoint: "large", Revision: 7}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestContextIsRefused(t *testing.T) {
	m, v := pair()
	other := NewMinter("door-1") // the same name, another key
	stranger := NewMinter("door-2")
	elsewhere := m.Mint(Context{Admission: "e", Endpoint: "small"}, noon)
	nameless := m.Mint(Context{Endpoint: "large"}, noon)
	good := mint(m, "x")
	unsigned, _ := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.RegisteredClaims{ID: "n", Audience: jwt.ClaimStrings{"large"},
		ExpiresAt: jwt.NewNumericDate(noon.Add(time.Hour))}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	symmetric, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{ID: "h", Audience: jwt.ClaimStrings{"large"},
		ExpiresAt: jwt.NewNumericDate(noon.Add(time.Hour))}).SignedString([]byte(m.PublicKey()))

	for name, c := range map[string]struct {
		token string
		at    time.Time
		want  error
	}{
		"missing":                     {"", noon, ErrInvalid},
		"garbage":                     {"a.b.c", noon, ErrInvalid},
		"cut":                         {good[:len(good)-2], noon, ErrInvalid},
		"another key, the same name":  {mint(other, "x"), noon, ErrInvalid},
		"unknown door":                {mint(stranger, "x"), noon, ErrInvalid},
		"no signature":                {unsigned, noon, ErrInvalid},
		"public key as shared secret": {symmetric, noon, ErrInvalid},
		"no admission":                {nameless, noon, ErrInvalid},
		"another endpoint":            {elsewhere, noon, ErrAudience},
		"too old":                     {good, noon.Add(Life + Skew + time.Second), ErrExpired},
		"from the future":             {good, noon.Add(-Skew - time.Second), ErrExpired},
	} {
		if _, err := v.Verify(c.token, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if _, err := v.Verify(good, noon); err != nil {
		t.Errorf("refusals must not use up a good context: %v", err)
	}
}

func TestContextServesOnce(t *testing.T) {
	m, v := pair()
	token := mint(m, "once")
	var served atomic.Int32
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := v.Verify(token, noon); err == nil {
				served.Add(1)
			} else if !errors.Is(err, ErrReplayed) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if served.Load() != 1 {
		t.Fatalf("served %d times", served.Load())
	}
}

func TestReplayIsRefusedForAsLongAsTheContextLives(t *testing.T) {
	m, v := pair()
	for at := -Skew; at < Life+Skew; at += 5 * time.Second {
		id := fmt.Sprint(at)
		token := mint(m, id)
		if _, err := v.Verify(token, noon.Add(at)); err != nil {
			t.Fatalf("at %v: %v", at, err)
		}
		for later := at; later < Life+Skew; later += 7 * time.Second {
			// Traffic in between turns the generations.
			_, _ = v.Verify(mint(m, id+fmt.Sprint(later)), noon.Add(later))
			if _, err := v.Verify(token, noon.Add(later)); !errors.Is(err, ErrReplayed) {
				t.Fatalf("used at %v, again at %v: %v", at, later, err)
			}
		}
	}
}

func TestVerifierForgetsWhatExpired(t *testing.T) {
	m, v := pair()
	for i := range 10 {
		at := noon.Add(time.Duration(i) * 2 * (Life + 2*Skew))
		s := m.Mint(Context{Admission: fmt.Sprint(i), Endpoint: "large"}, at)
		if _, err := v.Verify(s, at); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(v.seen); n > 2 {
		t.Fatalf("remembers %d admissions, want at most the last two", n)
	}
}

func TestRemovedDoorIsTrustedNoMore(t *testing.T) {
	m, v := pair()
	v.RemoveKey("door-1")
	if _, err := v.Verify(mint(m, "x"), noon); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	v.SetKey("door-1", ed25519.PublicKey{}) // a key of the wrong length must not panic
	if _, err := v.Verify(mint(m, "x"), noon); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	m := NewMinter("door-1")
	v := NewVerifier("large")
	v.SetKey("door-1", m.PublicKey())
	tokens := make([]string, b.N)
	for i := range tokens {
		tokens[i] = m.Mint(Context{Admission: fmt.Sprint(i), Key: "alice", Team: "t1", Model: "m", Endpoint: "large"}, noon)
	}
	b.ResetTimer()
	for _, s := range tokens {
		if _, err := v.Verify(s, noon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMint(b *testing.B) {
	m := NewMinter("door-1")
	for b.Loop() {
		m.Mint(Context{Admission: "a", Key: "alice", Team: "t1", Model: "m", Endpoint: "large"}, noon)
	}
}

func TestMask(t *testing.T) {
	secret, _ := NewKey()
	for in, want := range map[string]string{
		"": "", "no key": "no key", secret: "sk-sg-…", `x: "` + secret + `", y`: `x: "sk-sg-…", y`,
		secret[:20] + " " + secret: "sk-sg-… sk-sg-…", "sk-sg-": "sk-sg-",
	} {
		if got := Mask(in); got != want {
			t.Errorf("Mask(%q) = %q", in, got)
		}
	}
}
