package kv

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/zeebo/xxh3"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// recorded is one line of testdata/kv-events.jsonl.
type recorded struct {
	From    string
	Frames  []string `json:"frames_hex"`
	Payload string   `json:"payload_hex"`
	Seq     uint64
	Decoded []json.RawMessage
}

func (r recorded) payload(t testing.TB) []byte {
	t.Helper()
	text := r.Payload
	if len(r.Frames) == 3 {
		text = r.Frames[2]
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func recordings(t testing.TB) []recorded {
	t.Helper()
	f, err := os.Open("testdata/kv-events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// told is an event as the recordings write it.
type told struct {
	Type      string            `json:"type"`
	Hashes    []json.RawMessage `json:"block_hashes"`
	Parent    json.RawMessage   `json:"parent_block_hash"`
	Tokens    []uint32          `json:"token_ids"`
	BlockSize int               `json:"block_size"`
	Medium    string            `json:"medium"`
	Extra     []json.RawMessage `json:"extra_keys"`
	Group     uint16            `json:"group_idx"`
	Attention string            `json:"kv_cache_spec_kind"`
}

// tell reads an event of a recording in either form.
func tell(t *testing.T, raw json.RawMessage) (e told) {
	t.Helper()
	if raw[0] != '[' {
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(list[0], &e.Type)
	names := storedFields
	if e.Type == "BlockRemoved" {
		names = removedFields
	}
	named := map[string]json.RawMessage{}
	for i, v := range list[1:min(len(list), len(names)+1)] {
		named[names[i]] = v
	}
	again, _ := json.Marshal(named)
	if err := json.Unmarshal(again, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func hashOf(t *testing.T, raw json.RawMessage) Hash {
	t.Helper()
	if text, is := strings.CutPrefix(strings.Trim(string(raw), `"`), "hex:"); is {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return Hash(xxh3.Hash(b))
	}
	var n uint64
	if err := json.Unmarshal(raw, &n); err != nil {
		t.Fatal(err)
	}
	return Hash(n)
}

// Every recorded payload reads as it was decoded by another.
func TestRecordings(t *testing.T) {
	var d decoder
	all := recordings(t)
	if len(all) != 56 {
		t.Fatalf("%d recordings", len(all))
	}
	kinds := map[string]int{}
	for i, r := range all {
		b, err := d.decode(r.payload(t))
		if err != nil {
			t.Fatalf("%d (%s): %v", i, r.From, err)
		}
		var at float64
		var rank int
		var events []json.RawMessage
		for j, to := range []any{&at, &events, &rank} {
			if err := json.Unmarshal(r.Decoded[j], to); err != nil {
				t.Fatal(err)
			}
		}
		if b.Time != at || b.Rank != rank || len(b.Events) != len(events) {
			t.Errorf("%d: time %v, rank %d, %d events; want %v, %d, %d", i, b.Time, b.Rank, len(b.Events), at, rank, len(events))
		}
		for j, raw := range events {
			want := tell(t, raw)
			kinds[want.Type]++
			compare(t, fmt.Sprint(i, "/", j), b.Events[j], want)
		}
	}
	if kinds["BlockStored"] == 0 || kinds["BlockRemoved"] == 0 || kinds["AllBlocksCleared"] == 0 {
		t.Errorf("the recordings have %v", kinds)
	}
}

func compare(t *testing.T, at string, got Event, want told) {
	t.Helper()
	var hashes []Hash
	for _, h := range want.Hashes {
		hashes = append(hashes, hashOf(t, h))
	}
	if names := map[Kind]string{Stored: "BlockStored", Removed: "BlockRemoved", Cleared: "AllBlocksCleared"}; names[got.Kind] != want.Type {
		t.Fatalf("%s: %v (%v), want %s", at, got.Kind, got.Why, want.Type)
	}
	if !slices.Equal(got.Hashes, hashes) || !slices.Equal(got.Tokens, want.Tokens) || got.BlockSize != want.BlockSize ||
		got.Group != want.Group || got.Attention != want.Attention || got.Tier != workerv1.Tier_TIER_DEVICE {
		t.Errorf("%s: %+v\nwant %+v", at, got, want)
	}
	if has := len(want.Parent) > 0 && string(want.Parent) != "null"; has != got.HasParent || has && got.Parent != hashOf(t, want.Parent) {
		t.Errorf("%s: parent %v %x, want %s", at, got.HasParent, got.Parent, want.Parent)
	}
	for i, raw := range want.Extra {
		var salts []string
		_ = json.Unmarshal(raw, &salts)
		var keys []byte
		for _, s := range salts {
			keys = appendKey(keys, 's', []byte(s))
		}
		if string(got.Extra[i]) != string(keys) {
			t.Errorf("%s: extra keys %q of %s", at, got.Extra[i], raw)
		}
	}
}

// pack is the payload of one batch.
func pack(t testing.TB, events ...any) []byte {
	t.Helper()
	b, err := msgpack.Marshal([]any{1.5, events, 0})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type fields = map[string]any

func TestWhatEnginesWriteInOtherWays(t *testing.T) {
	signed := int64(-5)
	for name, c := range map[string]struct {
		event any
		want  Event
	}{
		"signed hashes": {fields{"type": "BlockRemoved", "block_hashes": []any{signed, int64(7)}},
			Event{Kind: Removed, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{Hash(uint64(signed)), 7}}},
		"type last, unknown field, medium in lower case": {
			event: ordered("later_field", []any{fields{"a": 1.5}, nil, true}, "block_hashes", []any{1}, "medium", "cpu", "type", "BlockRemoved"),
			want:  Event{Kind: Removed, Tier: workerv1.Tier_TIER_HOST, Hashes: []Hash{1}}},
		"array cut short": {[]any{"BlockStored", []any{1, 2}, nil, []any{10, 11, 70000, 13}, 2},
			Event{Kind: Stored, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{1, 2}, Tokens: []uint32{10, 11, 70000, 13}, BlockSize: 2}},
		"array with more": {[]any{"BlockRemoved", []any{3}, "EXTERNAL", 1, "LOCAL", nil, 12},
			Event{Kind: Removed, Tier: workerv1.Tier_TIER_SHARED, Hashes: []Hash{3}, Group: 1}},
		"unknown medium": {[]any{"BlockRemoved", []any{3}, "TAPE"}, Event{Kind: Removed, Medium: "TAPE", Hashes: []Hash{3}}},
		"no tokens": {fields{"type": "BlockStored", "block_hashes": []any{9}, "parent_block_hash": nil, "token_ids": []any{}, "block_size": 0, "medium": "CPU"},
			Event{Kind: Stored, Tier: workerv1.Tier_TIER_HOST, Hashes: []Hash{9}}},
		"no block size": {fields{"type": "BlockStored", "block_hashes": []any{9, 8}, "token_ids": []any{1, 2, 3, 4}},
			Event{Kind: Stored, Tier: workerv1.Tier_TIER_DEVICE, Hashes: []Hash{9, 8}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2}},
	} {
		var d decoder
		b, err := d.decode(pack(t, c.event, []any{"AllBlocksCleared"}))
		if err != nil || len(b.Events) != 2 || b.Events[1].Kind != Cleared {
			t.Errorf("%s: %v, %+v", name, err, b)
			continue
		}
		got := b.Events[0]
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, c.want)
		}
	}
}

// orderedMap keeps the order of its fields on the wire.
type orderedMap []any

func ordered(kv ...any) orderedMap { return kv }

func (o orderedMap) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeMapLen(len(o) / 2); err != nil {
		return err
	}
	return e.EncodeMulti(o...)
}

// What cannot be read is one event's loss, not the batch's.
func TestOneBadEventIsOneBadEvent(t *testing.T) {
	good := []any{"BlockRemoved", []any{1}}
	for name, bad := range map[string]any{
		"unknown kind":        []any{"BlockMoved", []any{1}},
		"unknown kind in map": fields{"type": "BlockMoved", "x": 1},
		"no kind":             fields{"block_hashes": []any{1}},
		"not an event":        17,
		"empty":               []any{},
		"tokens of pairs":     []any{"BlockStored", []any{1}, nil, []any{[]any{1, 2}}, 1},
		"tokens do not fit":   []any{"BlockStored", []any{1, 2}, nil, []any{1, 2, 3}, 2},
		"no hashes":           []any{"BlockStored", []any{}, nil, []any{}, 2},
		"token below zero":    []any{"BlockStored", []any{1}, nil, []any{-1}, 1},
		"extra do not fit":    []any{"BlockStored", []any{1}, nil, []any{1}, 1, nil, "GPU", nil, []any{nil, nil}},
	} {
		var d decoder
		b, err := d.decode(pack(t, good, bad, good))
		if err != nil || len(b.Events) != 3 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b.Events[0].Kind != Removed || b.Events[1].Kind != Unread || b.Events[1].Why == nil || b.Events[2].Kind != Removed {
			t.Errorf("%s: %+v", name, b.Events)
		}
	}
}

func TestAPayloadThatCannotBeFollowed(t *testing.T) {
	whole := pack(t, []any{"BlockRemoved", []any{1}})
	var d decoder
	for n := range whole {
		if _, err := d.decode(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are read as a payload", n, len(whole))
		}
	}
	deep := append([]byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91}, slices.Repeat([]byte{0x91}, 1000)...)
	for _, p := range [][]byte{deep, {0x90}, {0xdd, 0xff, 0xff, 0xff, 0xff}, {0x92, 1, 0xdd, 0xff, 0xff, 0xff, 0xf0, 0}} {
		if _, err := d.decode(p); err == nil {
			t.Errorf("% x is read", p)
		}
	}
}

// FuzzDecode: whatever arrives neither breaks the decoder nor is read in two ways, and what is read fits itself.
func FuzzDecode(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.payload(f))
	}
	other := recordings(f)[0].payload(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d, again decoder
		b, err := d.decode(payload)
		if err != nil {
			return
		}
		for _, e := range b.Events {
			if e.Kind == Stored && len(e.Tokens) > 0 && len(e.Tokens) != len(e.Hashes)*e.BlockSize || e.Kind == Unread && e.Why == nil {
				t.Fatalf("%+v", e)
			}
		}
		if _, err := again.decode(other); err != nil { // a used decoder reads the same
			t.Fatal(err)
		}
		second, err := again.decode(payload)
		if err != nil || fmt.Sprintf("%+v", b.Events) != fmt.Sprintf("%+v", second.Events) {
			t.Fatalf("%v: %+v\n%+v", err, b.Events, second)
		}
	})
}
