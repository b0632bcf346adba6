package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

var errKind = errors.New("an event of a kind that is not known")

// decoder reads payloads, [time, [events], rank], in both encodings: each event a tagged array or a tagged map. What it
// gives out is good until it reads again. One decoder serves one goroutine.
type decoder struct {
	reader
	batch  Batch
	hashes []Hash
	tokens []uint32
	extra  [][]byte
	keys   []byte // what extra and LoRA point into
}

// decode reads one payload. An event that cannot be read is Unread, and the others stand; an error means that the payload
// itself cannot be followed.
func (d *decoder) decode(payload []byte) (*Batch, error) {
	d.reader = reader{data: payload}
	d.batch = Batch{Rank: -1, Events: d.batch.Events[:0]}
	d.hashes, d.tokens, d.extra, d.keys = d.hashes[:0], d.tokens[:0], d.extra[:0], d.keys[:0]
	fields, err := d.array()
	if err == nil && fields < 2 {
		err = errType
	}
	if err == nil {
		d.batch.Time, err = d.number()
	}
	if err == nil {
		err = d.events()
	}
	if err == nil && fields > 2 && !d.null() {
		var rank uint64
		rank, err = d.below(math.MaxUint16)
		d.batch.Rank = int(rank)
	}
	for i := 3; i < fields && err == nil; i++ {
		err = d.skip()
	}
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", d.at, err)
	}
	return &d.batch, nil
}

func (d *decoder) events() error {
	n, err := d.array()
	for ; n > 0 && err == nil; n-- {
		start := d.at
		e := Event{Tier: workerv1.Tier_TIER_DEVICE}
		if why := d.event(&e); why != nil {
			e = Event{Why: why}
			d.at = start
			err = d.skip()
		}
		d.batch.Events = append(d.batch.Events, e)
	}
	return err
}

// event reads one event in either encoding.
func (d *decoder) event(e *Event) error {
	c, err := d.peek()
	if err != nil {
		return err
	}
	if d.isMap(c) {
		err = d.tagged(e)
	} else {
		err = d.listed(e)
	}
	if err != nil {
		return err
	}
	return e.check()
}

// Names of fields, in the order in which arrays have them.
var (
	storedFields = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
		"extra_keys", "group_idx", "kv_cache_spec_kind"}
	removedFields = []string{"block_hashes", "medium", "group_idx"}
)

func (d *decoder) listed(e *Event) error {
	n, err := d.array()
	if err != nil {
		return err
	}
	if n == 0 {
		return errType
	}
	tag, err := d.bytes()
	if err != nil {
		return err
	}
	if err := e.setKind(tag); err != nil {
		return err
	}
	var fields []string
	switch e.Kind {
	case Stored:
		fields = storedFields
	case Removed:
		fields = removedFields
	}
	for i := range n - 1 {
		if i >= len(fields) {
			err = d.skip()
		} else {
			err = d.field(e, fields[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tagged reads an event whose fields come by name, in any order.
func (d *decoder) tagged(e *Event) error {
	n, err := d.mapSize()
	for ; n > 0 && err == nil; n-- {
		var name []byte
		if name, err = d.bytes(); err != nil {
			break
		}
		if string(name) == "type" {
			var tag []byte
			if tag, err = d.bytes(); err == nil {
				err = e.setKind(tag)
			}
			continue
		}
		err = d.field(e, string(name)) // which does not allocate: the name is compared and not kept
	}
	if err == nil && e.Kind == Unread {
		err = errKind
	}
	return err
}

func (e *Event) setKind(tag []byte) error {
	switch string(tag) {
	case "BlockStored":
		e.Kind = Stored
	case "BlockRemoved":
		e.Kind = Removed
	case "AllBlocksCleared":
		e.Kind = Cleared
	default:
		return errKind
	}
	return nil
}

// field reads the value of one field. One that is nil is as one that is missing.
func (d *decoder) field(e *Event, name string) (err error) {
	if d.null() {
		e.HasExtra = e.HasExtra || name == "extra_keys"
		return nil
	}
	switch name {
	case "block_hashes":
		e.Hashes, err = d.hashList()
	case "parent_block_hash":
		e.Parent, err = d.hash()
		e.HasParent = true
	case "token_ids":
		e.Tokens, err = d.tokenList()
	case "block_size":
		var n uint64
		n, err = d.below(math.MaxUint16)
		e.BlockSize = int(n)
	case "lora_id":
		var id uint64
		if id, _, err = d.integer(); err == nil && e.LoRA == nil {
			e.LoRA = d.keep(func(k []byte) []byte { return binary.LittleEndian.AppendUint64(append(k, 'n'), id) })
		}
	case "lora_name":
		var name []byte
		if name, err = d.bytes(); err == nil {
			e.LoRA = d.keep(func(k []byte) []byte { return appendKey(k, 'l', name) })
		}
	case "medium":
		var medium []byte
		if medium, err = d.bytes(); err == nil {
			e.setMedium(medium)
		}
	case "extra_keys":
		e.Extra, err = d.extraList()
		e.HasExtra = true
	case "group_idx":
		var n uint64
		n, err = d.below(math.MaxUint16)
		e.Group = uint16(n)
	case "kv_cache_spec_kind":
		var kind []byte
		if kind, err = d.bytes(); err == nil {
			e.Attention = attentionName(kind)
		}
	default:
		err = d.skip()
	}
	return err
}

// attentionName is the kind without a new string for the usual ones.
func attentionName(kind []byte) string {
	switch string(kind) {
	case "full_attention":
		return "full_attention"
	case "sliding_window":
		return "sliding_window"
	}
	return string(kind)
}
