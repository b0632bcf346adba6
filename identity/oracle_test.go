package identity

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// libraryClaims are a context as golang-jwt writes it.
func libraryClaims(door string, c Context, now time.Time) jwt.MapClaims {
	m := jwt.MapClaims{
		"iss": door, "aud": []string{c.Endpoint}, "jti": c.Admission, "iat": now.Unix(), "exp": now.Add(Life).Unix(),
		"key": c.Key, "team": c.Team, "model": c.Model, "rev": c.Revision,
	}
	if c.Asked != "" {
		m["asked"] = c.Asked
	}
	if c.EngineName != "" {
		m["engine"] = c.EngineName
	}
	if c.Leg != "" {
		m["leg"] = c.Leg
	}
	if c.Body != "" {
		m["body"] = c.Body
	}
	if c.Worker != "" {
		m["worker"] = c.Worker
	}
	return m
}

// libraryVerify judges a token by golang-jwt.
func libraryVerify(token string, k ed25519.PublicKey, endpoint string, now time.Time) (jwt.MapClaims, error) {
	c := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, c, func(*jwt.Token) (any, error) { return k, nil },
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithAudience(endpoint), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(Skew), jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithJSONNumber())
	return c, err
}

// randomText is made of what breaks writers of JSON.
func randomText(r *rand.Rand) string {
	parts := []string{"a", "Z", "0", `"`, `\`, "\n", "\x00", "\x1f", "\x7f", "/", "<", "&", "é", "\u2028", "😀", "\ufffd", " ", "{", "}"}
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// randomContext is the i-th of a door, with text in every claim.
func randomContext(r *rand.Rand, i int, door string) Context {
	return Context{
		Admission: fmt.Sprint(i, randomText(r)), Door: door, Key: randomText(r), Team: randomText(r), Model: randomText(r),
		Endpoint: "e" + randomText(r), Revision: r.Uint64() >> r.IntN(64), Asked: randomText(r), EngineName: randomText(r),
		Leg: randomText(r), Body: randomText(r), Worker: randomText(r),
	}
}

// TestAnyLibraryReadsAContext: what Mint writes golang-jwt reads, and what golang-jwt writes Verify reads.
func TestAnyLibraryReadsAContext(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		m := NewMinter("door" + randomText(r))
		want := randomContext(r, i, m.Door())
		ours := m.Mint(want, noon)
		read, err := libraryVerify(ours, m.PublicKey(), want.Endpoint, noon)
		if err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		for name, value := range libraryClaims(m.Door(), want, noon) {
			got := read[name]
			if list, ok := value.([]string); ok {
				value = list[0]
			}
			if fmt.Sprint(got) != fmt.Sprint(value) {
				t.Fatalf("%s: wrote %q, golang-jwt read %q", name, value, got)
			}
		}
		library := jwt.NewWithClaims(jwt.SigningMethodEdDSA, libraryClaims(m.Door(), want, noon))
		library.Header["kid"] = m.Door()
		theirs, err := library.SignedString(m.using.Load().private)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{ours, theirs} {
			v := NewVerifier(want.Endpoint)
			v.SetKey(m.Door(), m.PublicKey())
			if got, err := v.VerifyLeg(token, want.Leg, noon); err != nil || got != want {
				t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
			}
		}
	}
}

func TestAnyFlippedBitIsRefused(t *testing.T) {
	m, v := pair()
	token := mint(m, "x")
	for i := range len(token) {
		for _, bit := range []int{i % 8, (i + 3) % 8} { // every bit of a byte somewhere: each costs a signature
			b := []byte(token)
			b[i] ^= 1 << bit
			if _, err := v.Verify(string(b), noon); !errors.Is(err, ErrInvalid) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	for _, s := range []string{token + "=", token + "\n", "\n" + token, token + ".", token + ".x", strings.Replace(token, ".", ".\n", 1)} {
		if _, err := v.Verify(s, noon); !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %v", s, err)
		}
	}
	if _, err := v.Verify(token, noon); err != nil {
		t.Fatal(err)
	}
}

// sign makes a token of any header and payload with the minter's own key.
func sign(m *Minter, header, payload string) string {
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(header)) + "." + enc.EncodeToString([]byte(payload))
	return text + "." + enc.EncodeToString(ed25519.Sign(m.using.Load().private, []byte(text)))
}

const (
	goodHeader  = `{"alg":"EdDSA","kid":"door-1","typ":"JWT"}`
	goodPayload = `{"aud":"large","exp":1777636860,"iat":1777636800,"jti":"x","key":"k"}`
)

func TestOddTokensOfAnHonestDoor(t *testing.T) {
	m, v := pair()
	for name, c := range map[string]struct {
		header, payload string
		want            error
	}{
		"good":                    {goodHeader, goodPayload, nil},
		"white space":             {" { \"alg\" : \"EdDSA\" ,\n\"kid\":\"door-1\"} ", goodPayload, nil},
		"escapes":                 {`{"alg":"\u0045dDSA","kid":"door-1"}`, strings.Replace(goodPayload, `"large"`, `["small","l\u0061rge"]`, 1), nil},
		"a claim of later":        {goodHeader, strings.Replace(goodPayload, "{", `{"new":["a","b"],"newer":7,"newest":"x",`, 1), nil},
		"no kid":                  {`{"alg":"EdDSA"}`, goodPayload, ErrUnknownKey},
		"another kid":             {`{"alg":"EdDSA","kid":"door-2"}`, goodPayload, ErrUnknownKey},
		"alg none":                {`{"alg":"none","kid":"door-1"}`, goodPayload, ErrInvalid},
		"alg HS256":               {`{"alg":"HS256","kid":"door-1"}`, goodPayload, ErrInvalid},
		"no alg":                  {`{"kid":"door-1"}`, goodPayload, ErrInvalid},
		"critical extension":      {`{"alg":"EdDSA","kid":"door-1","crit":["b64"]}`, goodPayload, ErrInvalid},
		"key brought along":       {`{"alg":"EdDSA","kid":"door-1","jku":"https://x"}`, goodPayload, ErrInvalid},
		"two kids":                {`{"alg":"EdDSA","kid":"door-2","kid":"door-1"}`, goodPayload, ErrInvalid},
		"two jtis":                {goodHeader, strings.Replace(goodPayload, "{", `{"jti":"y",`, 1), ErrInvalid},
		"two jtis, one escaped":   {goodHeader, strings.Replace(goodPayload, "{", `{"\u006ati":"y",`, 1), ErrInvalid},
		"two unknown":             {goodHeader, strings.Replace(goodPayload, "{", `{"n":"y","n":"z",`, 1), ErrInvalid},
		"bytes behind":            {goodHeader, goodPayload + "{}", ErrInvalid},
		"no object":               {goodHeader, `["aud"]`, ErrInvalid},
		"comma at the end":        {goodHeader, strings.Replace(goodPayload, "}", ",}", 1), ErrInvalid},
		"jti a number":            {goodHeader, strings.Replace(goodPayload, `"x"`, `1`, 1), ErrInvalid},
		"time a float":            {goodHeader, strings.Replace(goodPayload, `1777636860`, `1777636860.5`, 1), ErrInvalid},
		"time a string":           {goodHeader, strings.Replace(goodPayload, `1777636860`, `"1777636860"`, 1), ErrInvalid},
		"time negative":           {goodHeader, strings.Replace(goodPayload, `1777636860`, `-1`, 1), ErrInvalid},
		"time beyond all":         {goodHeader, strings.Replace(goodPayload, `1777636860`, `18446744073709551615`, 1), ErrExpired},
		"no end":                  {goodHeader, strings.Replace(goodPayload, `"exp":1777636860,`, ``, 1), ErrExpired},
		"not before an hour":      {goodHeader, strings.Replace(goodPayload, "{", `{"nbf":1777640400,`, 1), ErrExpired},
		"no audience":             {goodHeader, strings.Replace(goodPayload, `"aud":"large",`, ``, 1), ErrAudience},
		"an empty audience":       {goodHeader, strings.Replace(goodPayload, `"large"`, `[]`, 1), ErrAudience},
		"not UTF-8":               {goodHeader, strings.Replace(goodPayload, `"k"`, "\"\xff\"", 1), ErrInvalid},
		"a control character":     {goodHeader, strings.Replace(goodPayload, `"k"`, "\"\x01\"", 1), ErrInvalid},
		"more members than ever":  {goodHeader, "{" + strings.Repeat(`"n":1,`, 40) + goodPayload[1:], ErrInvalid},
		"longer than any context": {goodHeader, strings.Replace(goodPayload, `"k"`, `"`+strings.Repeat("k", maxContext)+`"`, 1), ErrInvalid},
	} {
		v.seen = map[use]struct{}{}
		if _, err := v.Verify(sign(m, c.header, c.payload), noon); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// FuzzClaims: an honest door's signature under any payload. What we accept golang-jwt accepts, and reads the same.
func FuzzClaims(f *testing.F) {
	f.Add(goodHeader, goodPayload)
	f.Add(goodHeader, strings.Replace(goodPayload, `"large"`, `["large"]`, 1))
	f.Add(`{"alg":"EdDSA","kid":"door-1"}`, strings.Replace(goodPayload, "{", `{"nbf":1,"rev":7,"team":"\ud800",`, 1))
	m := NewMinter("door-1")
	f.Fuzz(func(t *testing.T, header, payload string) {
		v := NewVerifier("large")
		v.SetKey("door-1", m.PublicKey())
		token := sign(m, header, payload)
		got, err := v.Verify(token, noon)
		if err != nil {
			return
		}
		if !utf8.ValidString(header) || !utf8.ValidString(payload) {
			t.Fatalf("accepted what is not UTF-8: %q %q", header, payload)
		}
		read, err := libraryVerify(token, m.PublicKey(), "large", noon)
		if err != nil {
			t.Fatalf("accepted %s %s, golang-jwt: %v", header, payload, err)
		}
		for name, value := range map[string]string{"jti": got.Admission, "iss": got.Door, "key": got.Key, "team": got.Team, "model": got.Model,
			"asked": got.Asked, "engine": got.EngineName, "body": got.Body, "leg": got.Leg, "worker": got.Worker} {
			if theirs, _ := read[name].(string); theirs != value {
				t.Fatalf("%s of %s: %q, golang-jwt read %q", name, payload, value, theirs)
			}
		}
	})
}

func TestKeysRotate(t *testing.T) {
	m, v := pair()
	keys, changed := m.Keys()
	if len(keys) != 1 || keys[0].ID != "door-1" || !keys[0].Public.Equal(m.PublicKey()) {
		t.Fatalf("at first %v", keys)
	}
	m.Rotate() // nothing is announced
	select {
	case <-changed:
		t.Fatal("changed by nothing")
	default:
	}
	old := mint(m, "old")
	for range 2 { // twice is once
		m.Announce()
	}
	<-changed
	keys, changed = m.Keys()
	if len(keys) != 2 || keys[1].ID != "door-1#2" || !keys[0].Public.Equal(m.PublicKey()) {
		t.Fatalf("announced %v", keys)
	}
	between := mint(m, "between")
	m.Rotate()
	<-changed
	after := mint(m, "after")
	keys, changed = m.Keys()
	if len(keys) != 2 || keys[0].ID != "door-1#2" || keys[1].ID != "door-1" {
		t.Fatalf("rotated to %v", keys)
	}
	m.Forget()
	<-changed
	if keys, _ := m.Keys(); len(keys) != 1 || keys[0].ID != "door-1#2" {
		t.Fatalf("one is forgotten: %v", keys)
	}
	if _, err := v.Verify(after, noon); !errors.Is(err, ErrUnknownKey) {
		t.Fatalf("a key that was not told: %v", err)
	}
	v.SetKey("door-1#2", m.PublicKey())
	for _, token := range []string{old, between, after} {
		if _, err := v.Verify(token, noon); err != nil {
			t.Fatal(err)
		}
	}
	v.RemoveKey("door-1")
	if _, err := v.Verify(old, noon); !errors.Is(err, ErrUnknownKey) {
		t.Fatalf("with a forgotten key: %v", err)
	}
}
