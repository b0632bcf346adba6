package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Minter makes contexts for one door: signed (Mint), or by MAC (MintFor). Its keys live in memory only: a door that restarts has another.
//
// A key is changed in two steps, so that no verifier meets a key that it has not heard of: Announce makes the next one, which
// those that follow Keys get to know, and Rotate takes it into use a little later. A third one, Forget, is for verifiers that
// come in between: contexts of the key before may still be under way.
type Minter struct {
	door  string
	using atomic.Pointer[signer]

	mu      sync.Mutex // guards what is below
	made    int
	next    *signer       // announced, not in use
	former  []DoorKey     // in use before, and not forgotten
	changed chan struct{} // closed at the next Announce or Rotate
}

// DoorKey is a key that contexts of a door are signed with.
type DoorKey struct {
	ID     string // the "kid" of the contexts: the door's name, and "#2" and so on after the first
	Public ed25519.PublicKey
}

// signer is one key pair and what is the same in all its contexts.
type signer struct {
	DoorKey
	private ed25519.PrivateKey
	header  string // encoded, with the dot
}

// NewMinter makes a door's first key pair. door is its name, unique in the spoke.
func NewMinter(door string) *Minter {
	m := &Minter{door: door, changed: make(chan struct{})}
	m.using.Store(m.make())
	return m
}

func (m *Minter) make() *signer {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails: see crypto/rand
	m.made++
	id := m.door
	if m.made > 1 {
		id += "#" + strconv.Itoa(m.made)
	}
	header := append(appendJSON([]byte(`{"alg":"EdDSA","kid":`), id), `,"typ":"JWT"}`...)
	return &signer{DoorKey{id, public}, private, base64.RawURLEncoding.EncodeToString(header) + "."}
}

// Announce makes the key that Rotate will take into use. A second call before that changes nothing.
func (m *Minter) Announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = m.make()
		m.tell()
	}
}

// Rotate signs with the announced key from now on. Without one it changes nothing. The key before is needed for Life + 2 × Skew
// more: then Forget it.
func (m *Minter) Rotate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil {
		m.former = append(m.former, m.using.Load().DoorKey)
		m.using.Store(m.next)
		m.next = nil
		m.tell()
	}
}

// Forget leaves out of Keys what was in use before.
func (m *Minter) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.former) > 0 {
		m.former = nil
		m.tell()
	}
}

func (m *Minter) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Keys are the key in use, after it the one that is announced, and those that were in use before. changed is closed when they
// change.
func (m *Minter) Keys() (keys []DoorKey, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys = []DoorKey{m.using.Load().DoorKey}
	if m.next != nil {
		keys = append(keys, m.next.DoorKey)
	}
	return append(keys, m.former...), m.changed
}

// Door is the door's name, and the id of its first key.
func (m *Minter) Door() string { return m.door }

// PublicKey is that of the key in use.
func (m *Minter) PublicKey() ed25519.PublicKey { return m.using.Load().Public }

// Mint signs c, valid from now (less Skew) for Life.
func (m *Minter) Mint(c Context, now time.Time) string {
	var space [640]byte
	payload := appendClaims(space[:0], m.door, c, now)
	s, enc := m.using.Load(), base64.RawURLEncoding
	token := make([]byte, 0, len(s.header)+enc.EncodedLen(len(payload))+1+enc.EncodedLen(ed25519.SignatureSize))
	token = enc.AppendEncode(append(token, s.header...), payload)
	signature := ed25519.Sign(s.private, token)
	return string(enc.AppendEncode(append(token, '.'), signature))
}

// appendClaims writes the claims in the order of their names, as encoding/json would.
func appendClaims(b []byte, door string, c Context, now time.Time) []byte {
	text := func(name, value string) {
		b = append(b, name...)
		b = appendJSON(b, value)
	}
	number := func(name string, value int64) { b = strconv.AppendInt(append(b, name...), value, 10) }

	text(`{"aud":`, c.Endpoint)
	if c.Asked != "" {
		text(`,"asked":`, c.Asked)
	}
	if c.Body != "" {
		text(`,"body":`, c.Body)
	}
	if c.EngineName != "" {
		text(`,"engine":`, c.EngineName)
	}
	number(`,"exp":`, now.Add(Life).Unix())
	number(`,"iat":`, now.Unix())
	text(`,"iss":`, door)
	text(`,"jti":`, c.Admission)
	text(`,"key":`, c.Key)
	if c.Leg != "" {
		text(`,"leg":`, c.Leg)
	}
	text(`,"model":`, c.Model)
	b = strconv.AppendUint(append(b, `,"rev":`...), c.Revision, 10)
	text(`,"team":`, c.Team)
	if c.Worker != "" {
		text(`,"worker":`, c.Worker)
	}
	return append(b, '}')
}
