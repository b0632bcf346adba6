package main

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// csvRows writes a row of names, and then one a record. Its columns are the fields in the proto's order, those of a part behind
// its name and "_", and then what is derived; new ones come where they stand in the proto: read them by name. An empty cell is
// unknown.
func csvRows(w io.Writer) func(*usagev1.Record) error {
	out := csv.NewWriter(w)
	begun := false
	return func(r *usagev1.Record) error {
		if !begun {
			begun = true
			if err := out.Write(append(columns(r.ProtoReflect().Descriptor(), ""), "ttfb_ms", "duration_ms", "milli_tokens_per_second")); err != nil {
				return err
			}
		}
		d := usage.Derive(r)
		if err := out.Write(append(cells(nil, r.ProtoReflect(), true), optional(d.FirstByte), optional(d.Duration), optional(d.Speed))); err != nil {
			return err
		}
		out.Flush()
		return out.Error()
	}
}

// columns are the names of a message's fields.
func columns(m protoreflect.MessageDescriptor, prefix string) (names []string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := prefix + string(f.Name())
		if part(f) {
			names = append(names, columns(f.Message(), name+"_")...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// part tells whether a field is a message with columns of its own.
func part(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && !f.IsMap() && f.Message().FullName() != "google.protobuf.Timestamp"
}

// cells appends the values of a message's fields. there: it is not absent itself.
func cells(to []string, m protoreflect.Message, there bool) []string {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case part(f):
			to = cells(to, m.Get(f).Message(), there && m.Has(f))
		case there:
			to = append(to, cell(m, f))
		default:
			to = append(to, "")
		}
	}
	return to
}

func optional(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func cell(r protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if f.HasPresence() && !r.Has(f) {
		return ""
	}
	v := r.Get(f)
	switch {
	case f.IsList():
		list := v.List()
		words := make([]string, list.Len())
		for i := range words {
			words[i] = list.Get(i).String()
		}
		return usage.PlainCell(strings.Join(words, " "))
	case f.IsMap():
		var words []string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			words = append(words, k.String()+"="+v.String())
			return true
		})
		slices.Sort(words)
		return usage.PlainCell(strings.Join(words, ";"))
	case f.Message() != nil:
		if t := v.Message().Interface().(*timestamppb.Timestamp); t.IsValid() {
			return t.AsTime().Format(time.RFC3339Nano)
		}
		return ""
	case f.Kind() == protoreflect.StringKind:
		return usage.PlainCell(v.String())
	}
	return v.String()
}
