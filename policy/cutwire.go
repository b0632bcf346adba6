package policy

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// A cut is written as an encoded Set and read from one without a look into its resources: a resource's body is a field's
// content as it stands there. These are the numbers of the fields.
var setFields = map[string]protowire.Number{
	KindPlatform: 2, KindModel: 3, KindEndpoint: 4, KindTeam: 5, KindKeyShard: 6, KindIssuer: 7,
}

const (
	revisionField protowire.Number = 1
	// removedField is of a step, from a Set to the next: the kind and the name, with a slash between, of what is gone.
	removedField protowire.Number = 15
)

// encodeSet is the encoding of a Set with this revision and these resources, or of a step to it.
func encodeSet(revision *policyv1.Revision, resources iter.Seq[Resource], removed []Ref) ([]byte, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(revision)
	if err != nil {
		return nil, err
	}
	out := protowire.AppendBytes(protowire.AppendTag(nil, revisionField, protowire.BytesType), body)
	for r := range resources {
		out = protowire.AppendBytes(protowire.AppendTag(out, setFields[r.Kind], protowire.BytesType), r.Body)
	}
	for _, r := range removed {
		out = protowire.AppendString(protowire.AppendTag(out, removedField, protowire.BytesType), r.Kind+"/"+r.Name)
	}
	return out, nil
}

// encoded is what an encoded Set, or a step, is made of.
type encoded struct {
	revision *policyv1.Revision
	changed  []Resource
	removed  []Ref
}

// decodeSet takes an encoded Set, or a step, apart. The bodies share its memory.
func decodeSet(data []byte) (*encoded, error) {
	out := &encoded{revision: &policyv1.Revision{}}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.BytesType {
			return nil, fmt.Errorf("field %d of a set is no message", number)
		}
		body, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
		if err := out.take(number, body); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *encoded) take(number protowire.Number, body []byte) error {
	switch number {
	case revisionField:
		return proto.Unmarshal(body, e.revision)
	case removedField:
		kind, name, _ := strings.Cut(string(body), "/")
		e.removed = append(e.removed, Ref{kind, name})
		return nil
	}
	for kind, field := range setFields {
		if field == number {
			name, err := nameIn(kind, body)
			e.changed = append(e.changed, NewResource(kind, name, body))
			return err
		}
	}
	return fmt.Errorf("field %d of a set is of another release", number)
}

// nameIn is the name in a resource's body: its first field.
func nameIn(kind string, body []byte) (name string, err error) {
	for len(body) > 0 && kind != KindPlatform {
		number, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		body = body[n:]
		switch {
		case number == 1 && kind == KindKeyShard && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(body)
			if n < 0 {
				return "", protowire.ParseError(n)
			}
			return strconv.FormatUint(v, 10), nil
		case number == 1 && kind != KindKeyShard && typ == protowire.BytesType:
			v, n := protowire.ConsumeString(body)
			if n < 0 {
				return "", protowire.ParseError(n)
			}
			return v, nil
		}
		if n = protowire.ConsumeFieldValue(number, typ, body); n < 0 {
			return "", protowire.ParseError(n)
		}
		body = body[n:]
	}
	if kind == KindKeyShard {
		name = "0"
	}
	return name, nil
}

// Set is the cut as a message.
func (c *Cut) Set() (*policyv1.Set, error) {
	data, err := encodeSet(c.revision, c.All(), nil)
	if err != nil {
		return nil, err
	}
	set := &policyv1.Set{}
	if err := proto.Unmarshal(data, set); err != nil {
		return nil, fmt.Errorf("a resource cannot be read: %w", err)
	}
	return set, nil
}

// decode reads a resource's body, which must be of the name that it goes by.
func decode(r Resource, into proto.Message) error {
	name, err := nameIn(r.Kind, r.Body)
	if err == nil && name != r.Name {
		return errors.New("is another's: " + quote(name))
	}
	if err == nil {
		err = proto.Unmarshal(r.Body, into)
	}
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}
