package usage

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// AppendJSON appends the JSON form of r: the proto field names in the proto's order, integers as JSON numbers, an absent
// optional as null, times in RFC 3339 UTC. Every field is always there, but for labels. The result has no line feed, and bytes that are not
// UTF-8 become U+FFFD.
//
// Written by hand because protojson makes strings of 64-bit integers, leaves absent fields out and is not stable by design.
func AppendJSON(dst []byte, r *usagev1.Record) []byte {
	o := object{b: append(dst, '{')}
	o.str("id", r.Id)
	o.str("kind", r.Kind)
	o.str("source", r.Source)
	o.uint("epoch", r.Epoch)
	o.uint("sequence", r.Sequence)
	o.str("previous", r.Previous)
	o.str("admission", r.Admission)
	o.str("key", r.Key)
	o.str("team", r.Team)
	o.str("model", r.Model)
	o.str("endpoint", r.Endpoint)
	o.str("spoke", r.Spoke)
	o.str("worker", r.Worker)
	o.uint("revision", r.Revision)
	o.str("operation", r.Operation)
	o.str("client_request_id", r.ClientRequestId)
	o.uint("attempt", uint64(r.Attempt))
	o.bool("stream", r.Stream)
	o.optionalStr("asked_model", r.AskedModel)
	o.texts("labels", r.Labels)
	o.optionalUint("choices", r.Choices)
	o.optional("prompt_tokens", r.PromptTokens)
	o.optional("cached_tokens", r.CachedTokens)
	o.optional("completion_tokens", r.CompletionTokens)
	o.optional("reasoning_tokens", r.ReasoningTokens)
	o.str("counted_from", r.CountedFrom)
	o.price(r.Price)
	o.optional("cost", r.Cost)
	o.str("outcome", r.Outcome)
	o.list("anomalies", r.Anomalies)
	o.optionalUint("status", r.Status)
	o.optional("request_bytes", r.RequestBytes)
	o.optional("response_bytes", r.ResponseBytes)
	o.time("admitted_at", r.AdmittedAt)
	o.time("first_byte_at", r.FirstByteAt)
	o.time("ended_at", r.EndedAt)
	o.checkpoint(r.Checkpoint)
	o.str("engine_epoch", r.EngineEpoch)
	o.engine(r.Engine)
	o.rejection(r.Rejection)
	o.balance(r.Balance)
	return append(o.b, '}')
}

// ParseJSON reads what AppendJSON wrote. Members that it does not know are left out, so that a record of a newer version
// can be read; anything else that does not fit is an error.
func ParseJSON(b []byte) (*usagev1.Record, error) {
	r := new(usagev1.Record)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("not a usage record: %w", err)
	}
	return r, nil
}

// object appends the members of one JSON object.
type object struct {
	b     []byte
	begun bool
}

func (o *object) name(name string) {
	if o.begun {
		o.b = append(o.b, ',')
	}
	o.begun = true
	o.b = append(append(append(o.b, '"'), name...), `":`...)
}

func (o *object) str(name, v string) {
	o.name(name)
	o.b = appendString(o.b, v)
}

func (o *object) optionalStr(name string, v *string) {
	if v == nil {
		o.null(name)
		return
	}
	o.str(name, *v)
}

// texts writes an object of texts, sorted by name. One without any is left out.
func (o *object) texts(name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	o.name(name)
	o.b = append(o.b, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(appendString(o.b, k), ':')
		o.b = appendString(o.b, m[k])
	}
	o.b = append(o.b, '}')
}

func (o *object) uint(name string, v uint64) {
	o.name(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}

func (o *object) optionalUint(name string, v *uint32) {
	if v == nil {
		o.null(name)
		return
	}
	o.uint(name, uint64(*v))
}

func (o *object) bool(name string, v bool) {
	o.name(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) null(name string) {
	o.name(name)
	o.b = append(o.b, "null"...)
}

func (o *object) optional(name string, v *int64) {
	if v == nil {
		o.null(name)
		return
	}
	o.name(name)
	o.b = strconv.AppendInt(o.b, *v, 10)
}

func (o *object) list(name string, values []string) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendString(o.b, v)
	}
	o.b = append(o.b, ']')
}

// time writes a time that RFC 3339 cannot say as null: an unreadable line would be worse than an unknown time.
func (o *object) time(name string, t *timestamppb.Timestamp) {
	if t == nil || t.CheckValid() != nil { // which makes an error also of nil
		o.null(name)
		return
	}
	o.name(name)
	o.b = append(o.b, '"')
	o.b = t.AsTime().AppendFormat(o.b, time.RFC3339Nano)
	o.b = append(o.b, '"')
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0 // from here to i all is as it is written
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[plain:i]...)
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = utf8.AppendRune(dst, r) // RuneError for a byte that is not UTF-8
		}
		i += size
		plain = i
	}
	return append(append(dst, s[plain:]...), '"')
}
