package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// sharing is a door and n workers that share a secret with it.
func sharing(n int) (m *Minter, secrets []Secret, workers []*Verifier) {
	m = NewMinter("door-1")
	for range n {
		s, v := NewSecret(), NewVerifier("large")
		v.SetSecret(s)
		secrets, workers = append(secrets, s), append(workers, v)
	}
	return m, secrets, workers
}

// slowTag is what a tag should be, by the library and by the letter.
func slowTag(s Secret, payload string) string {
	sum := sha256.Sum256([]byte(payload))
	h := hmac.New(sha256.New, s.Key())
	h.Write([]byte("spokegate-context-mac\n"))
	h.Write(sum[:])
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// slowVerify judges a context by MAC for a worker that knows these secrets: every part taken to pieces and made anew, the claims by
// golang-jwt.
func slowVerify(token string, known []Secret, endpoint string, now time.Time) (jwt.MapClaims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] != "m" || len(token) > 8<<10 {
		return nil, errors.New("not three parts")
	}
	entries, good := strings.Split(parts[2], ","), 0
	for _, e := range entries {
		if len(e) != 34 || e[11] != ':' {
			return nil, errors.New("no tag")
		}
		for _, s := range known {
			if e[:11] == s.ID() {
				if e[12:] != slowTag(s, parts[1]) {
					return nil, errors.New("a wrong tag")
				}
				good++
			}
		}
	}
	if good != 1 || len(entries) > 8 {
		return nil, errors.New("not one of mine")
	}
	// The same claims in a JWT of the library's own.
	key, text := []byte("k"), "eyJhbGciOiJIUzI1NiJ9."+parts[1] // {"alg":"HS256"}
	signature, err := jwt.SigningMethodHS256.Sign(text, key)
	if err != nil {
		return nil, err
	}
	c := jwt.MapClaims{}
	_, err = jwt.ParseWithClaims(text+"."+base64.RawURLEncoding.EncodeToString(signature), c, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(endpoint), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(Skew), jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithJSONNumber())
	return c, err
}

// TestMacsAgreeWithTheLibrary: what MintFor makes is what the library would, is read by each worker that it is for as Mint's is, and
// by no other.
func TestMacsAgreeWithTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		m := NewMinter("door" + randomText(r))
		want := randomContext(r, i, m.Door())
		var to []Secret
		for range 1 + r.IntN(MaxSecrets) {
			to = append(to, NewSecret())
		}
		token := m.MintFor(want, noon, to)
		payload := strings.Split(m.Mint(want, noon), ".")[1]
		var tags []string
		for _, s := range to {
			tags = append(tags, s.ID()+":"+slowTag(s, payload))
		}
		if whole := "m." + payload + "." + strings.Join(tags, ","); token != whole {
			t.Fatalf("made %s\nwant %s", token, whole)
		}
		for _, s := range to {
			v := NewVerifier(want.Endpoint)
			v.SetSecret(NewSecret()) // of another door
			v.SetSecret(s)
			if got, err := v.VerifyLeg(token, want.Leg, noon); err != nil || got != want {
				t.Fatalf("got %+v, %v\nwant %+v", got, err, want)
			}
			if _, err := v.VerifyLeg(token, want.Leg, noon); !errors.Is(err, ErrReplayed) {
				t.Fatalf("a second time: %v", err)
			}
			if _, err := slowVerify(token, []Secret{s}, want.Endpoint, noon); err != nil {
				t.Fatalf("the oracle: %v", err)
			}
		}
		v := NewVerifier(want.Endpoint)
		v.SetKey(m.Door(), m.PublicKey())
		v.SetSecret(NewSecret())
		if _, err := v.VerifyLeg(token, want.Leg, noon); !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("at a worker that it is not for: %v", err)
		}
	}
}

// Every bit of what concerns a worker counts, and none of another's tag.
func TestAnyFlippedBitOfAMacIsRefused(t *testing.T) {
	m, secrets, workers := sharing(3)
	token := m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, secrets)
	others := len(token) - 3*tagEntry + 1 // of its tags the second is the worker's own
	for i := range len(token) {
		ours := i < others || i%tagEntry == (others-1)%tagEntry || i >= others+tagEntry && i < others+2*tagEntry
		for bit := range 8 {
			b := []byte(token)
			b[i] ^= 1 << bit
			v := workers[1]
			if _, err := v.Verify(string(b), noon); ours && !errors.Is(err, ErrInvalid) {
				t.Fatalf("bit %d of byte %d (%q): %v", bit, i, b, err)
			}
			v.seen = map[use]struct{}{}
		}
	}
}

func TestOddMacs(t *testing.T) {
	m, secrets, workers := sharing(2)
	mine, v := secrets[0], workers[0]
	second := NewSecret() // of the same worker, from another stream
	v.SetSecret(second)
	long := []Secret{mine}
	for range MaxSecrets {
		long = append(long, NewSecret())
	}
	good := m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, secrets)
	head, tags, _ := strings.Cut(good[len("m."):], ".")
	tag, other, _ := strings.Cut(tags, ",")
	make := func(payload string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(payload))
		return "m." + text + "." + mine.ID() + ":" + slowTag(mine, text)
	}
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"good":                   {good, nil},
		"alone":                  {"m." + head + "." + tag, nil},
		"in another order":       {"m." + head + "." + other + "," + tag, nil},
		"of nobody here":         {"m." + head + "." + other, ErrUnknownKey},
		"no tag":                 {"m." + head + ".", ErrInvalid},
		"no third part":          {"m." + head, ErrInvalid},
		"four parts":             {good + ".x", ErrInvalid},
		"twice the same tag":     {"m." + head + "." + tag + "," + tag, ErrInvalid},
		"two secrets of mine":    {m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, []Secret{mine, second}), ErrInvalid},
		"cut":                    {good[:len(good)-1], ErrInvalid},
		"extended":               {good + "A", ErrInvalid},
		"a comma at the end":     {good + ",", ErrInvalid},
		"a line break":           {good + "\n", ErrInvalid},
		"a tag in padded base64": {"m." + head + "." + tag + "==", ErrInvalid},
		"the other's tag":        {"m." + head + "." + mine.ID() + ":" + other[idText+1:], ErrInvalid},
		"another head":           {"M." + head + "." + tags, ErrInvalid},
		"the JWT's head":         {"e30." + head + "." + tags, ErrInvalid},
		"too many tags":          {m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, long), ErrInvalid},
		"as many as may be":      {m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, long[:MaxSecrets]), nil},
		"longer than any":        {make(strings.Replace(goodPayload, `"k"`, `"`+strings.Repeat("k", maxContext)+`"`, 1)), ErrInvalid},
		"by hand":                {make(goodPayload), nil},
		"two jtis":               {make(strings.Replace(goodPayload, "{", `{"jti":"y",`, 1)), ErrInvalid},
		"bytes behind":           {make(goodPayload + "{}"), ErrInvalid},
		"no end":                 {make(strings.Replace(goodPayload, `"exp":1777636860,`, ``, 1)), ErrExpired},
		"no audience":            {make(strings.Replace(goodPayload, `"aud":"large",`, ``, 1)), ErrAudience},
		"expired":                {m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon.Add(-Life-Skew), secrets), ErrExpired},
		"not valid yet":          {m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon.Add(2*Skew), secrets), ErrExpired},
		"another endpoint":       {m.MintFor(Context{Admission: "x", Endpoint: "small"}, noon, secrets), ErrAudience},
		"another leg":            {m.MintFor(Context{Admission: "x", Endpoint: "large", Leg: LegPrefill}, noon, secrets), ErrLeg},
		"no admission":           {m.MintFor(Context{Endpoint: "large"}, noon, secrets), ErrInvalid},
	} {
		v.seen = map[use]struct{}{}
		if _, err := v.Verify(c.token, noon); !errors.Is(err, c.want) || c.want == ErrInvalid && errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// An admission is used once, whichever way its contexts were made.
func TestAMacAndASignatureAreOneUse(t *testing.T) {
	m, secrets, workers := sharing(1)
	v := workers[0]
	v.SetKey(m.Door(), m.PublicKey())
	if _, err := v.Verify(m.MintFor(Context{Admission: "x", Endpoint: "large"}, noon, secrets), noon); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(mint(m, "x"), noon); !errors.Is(err, ErrReplayed) {
		t.Errorf("signed, after a MAC: %v", err)
	}
	v.RemoveSecret(secrets[0].ID())
	if _, err := v.Verify(m.MintFor(Context{Admission: "y", Endpoint: "large"}, noon, secrets), noon); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("by a secret that is gone: %v", err)
	}
}

// FuzzMacs: any token. What we accept the oracle accepts, and reads the same.
func FuzzMacs(f *testing.F) {
	mine, _ := SecretOf("AAAAAAAAAAA", make([]byte, secretSize))
	second, _ := SecretOf("AAAAAAAAAAE", append(make([]byte, secretSize-1), 1))
	m := NewMinter("door-1")
	c := Context{Admission: "x", Endpoint: "large"}
	f.Add(m.MintFor(c, noon, []Secret{mine}), "", "")
	f.Add(m.MintFor(c, noon, []Secret{mine, second}), "", "")
	f.Add(m.Mint(c, noon), goodPayload, "BAAAAAAAAAE:BAAAAAAAAAEBAAAAAAAAAE,")
	f.Fuzz(func(t *testing.T, token, payload, before string) {
		text := base64.RawURLEncoding.EncodeToString([]byte(payload))
		for _, token := range []string{token, "m." + text + "." + before + mine.ID() + ":" + slowTag(mine, text)} {
			v := NewVerifier("large")
			v.SetSecret(mine)
			v.SetSecret(second)
			got, err := v.Verify(token, noon)
			if err != nil {
				continue
			}
			read, err := slowVerify(token, []Secret{mine, second}, "large", noon)
			if err != nil {
				t.Fatalf("accepted %q, the oracle: %v", token, err)
			}
			for name, value := range map[string]string{"jti": got.Admission, "iss": got.Door, "key": got.Key, "team": got.Team, "body": got.Body, "worker": got.Worker} {
				if theirs, _ := read[name].(string); theirs != value {
					t.Fatalf("%s of %s: %q, the oracle read %q", name, token, value, theirs)
				}
			}
		}
	})
}

func BenchmarkMintFor(b *testing.B) {
	for _, n := range []int{1, 3, MaxSecrets} {
		m, secrets, _ := sharing(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.MintFor(Context{Admission: "a", Key: "alice", Team: "t1", Model: "m", Endpoint: "large"}, noon, secrets)
			}
		})
	}
}

func BenchmarkVerifyMac(b *testing.B) {
	m, secrets, workers := sharing(3)
	tokens := make([]string, b.N)
	for i := range tokens {
		tokens[i] = m.MintFor(Context{Admission: fmt.Sprint(i), Key: "alice", Team: "t1", Model: "m", Endpoint: "large"}, noon, secrets)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, s := range tokens {
		if _, err := workers[2].Verify(s, noon); err != nil {
			b.Fatal(err)
		}
	}
}
