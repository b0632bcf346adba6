package kv

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/router/blocktree"
)

// TestBlocksOfAnAdapter are found under its name and under no other, and the name is told before them.
func TestBlocksOfAnAdapter(t *testing.T) {
	s := newSource(t, nil, func(c *Config) { c.Model = SimModel(); nowhere(c) })
	a := s.announcer
	a.reset(testSeed, 100)
	s.SetAdapters([]string{"law", strings.Repeat("x", longestAdapter+1)})
	p := newPicker(t)
	p.pull(a)
	if got := p.profile.Adapters; !slices.Equal(got, []string{"law"}) {
		t.Errorf("the engine lists %q", got)
	}
	store := func(hash Hash, lora string) {
		e := Event{Kind: Stored, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{hash}, Tokens: []uint32{binary.LittleEndian.Uint32([]byte("abcd"))}, BlockSize: 1}
		if lora != "" { // as vLLM tells it: by name, and again in the keys of the block
			e.LoRA = appendKey(nil, 'l', []byte(lora))
			e.Extra, e.HasExtra = [][]byte{appendKey(nil, 's', []byte(lora))}, true
		}
		a.apply(0, []Event{e})
	}
	store(1, "sql")
	store(2, "no\xffname")
	p.pull(a)
	if got := p.profile.Adapters; !slices.Equal(got, []string{"law", "sql"}) {
		t.Errorf("with what its events name: %q", got)
	}
	for name, want := range map[string]int{"sql": 1, "law": 0, "": 0} {
		if n := p.depth("abcd", blocktree.Root(testSeed, name, "")); n != want {
			t.Errorf("%q holds %d blocks", name, n)
		}
	}
	store(3, "")
	p.pull(a)
	if n := p.depth("abcd", 0); n != 1 {
		t.Errorf("the model itself holds %d blocks", n)
	}
	s.SetAdapters(nil)
	p.pull(a)
	if got := p.profile.Adapters; !slices.Equal(got, []string{"sql"}) {
		t.Errorf("one that is listed no more: %q", got)
	}
}
