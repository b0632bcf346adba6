package extproc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// message is what the meter reads of a ProcessingRequest. Its bytes are slices of what it was read from.
type message struct {
	about    part
	observed bool // Envoy goes on by itself and reads no answer
	end      bool // end_of_stream, of headers or of a body
	// Of response headers; of two with one name the last counts.
	status  []byte
	sse     bool
	refused bool
	// Of a response body.
	body []byte
	// Attributes, which come with the first message about a response.
	of attributes
}

// part is what a message is about: the number of its field in the oneof.
type part = protowire.Number

const (
	requestHeaders   part = 2
	responseHeaders  part = 3
	requestBody      part = 4
	responseBody     part = 5
	requestTrailers  part = 6
	responseTrailers part = 7
)

// Numbers of the other fields that are read, in envoy/service/ext_proc/v3, envoy/config/core/v3 and google/protobuf.
const (
	messageAttributes = 9
	messageObserved   = 10
	headersMap        = 1
	headersEnd        = 3
	mapHeaders        = 1
	headerKey         = 1
	headerValue       = 2
	headerRawValue    = 3
	bodyBytes         = 1
	bodyEnd           = 2
	entryKey          = 1
	entryValue        = 2
	structFields      = 1
)

// attributes say whose response it is.
type attributes struct{ id, path, cluster, upstream []byte }

// parse reads the wire form of a ProcessingRequest as protobuf demands: a message that comes again is merged, of anything
// else the last one counts, and what is not known is skipped. What is not read here is not looked into: it may be malformed.
func parse(b []byte) (m message, err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type == protowire.BytesType && requestHeaders <= f.Number && f.Number <= responseTrailers:
			if m.about != f.Number {
				m = message{about: f.Number, observed: m.observed, of: m.of}
			}
			err = m.read(f.Bytes)
		case f.Type == protowire.BytesType && f.Number == messageAttributes:
			err = m.attributes(f.Bytes)
		case f.Type == protowire.VarintType && f.Number == messageObserved:
			m.observed = f.Varint != 0
		}
	}
	if err == nil {
		err = f.Err()
	}
	return m, err
}

// read takes what the message is about.
func (m *message) read(b []byte) error {
	switch m.about {
	case responseHeaders:
		return m.headers(b)
	case responseBody:
		f := wire.Over(b)
		for f.Next() {
			switch {
			case f.Number == bodyBytes && f.Type == protowire.BytesType:
				m.body = f.Bytes
			case f.Number == bodyEnd && f.Type == protowire.VarintType:
				m.end = f.Varint != 0
			}
		}
		return f.Err()
	}
	return nil
}

func (m *message) headers(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Number == headersMap && f.Type == protowire.BytesType:
			if err := each(f.Bytes, mapHeaders, m.header); err != nil {
				return err
			}
		case f.Number == headersEnd && f.Type == protowire.VarintType:
			m.end = f.Varint != 0
		}
	}
	return f.Err()
}

// each calls take for every occurrence of a field that has a length.
func each(b []byte, number protowire.Number, take func([]byte) error) error {
	f := wire.Over(b)
	for f.Next() {
		if f.Number == number && f.Type == protowire.BytesType {
			if err := take(f.Bytes); err != nil {
				return err
			}
		}
	}
	return f.Err()
}

// header takes one header. Envoy fills raw_value, other gateways value.
func (m *message) header(b []byte) error {
	var key, value, raw []byte
	f := wire.Over(b)
	for f.Next() {
		if f.Type != protowire.BytesType {
			continue
		}
		switch f.Number {
		case headerKey:
			key = f.Bytes
		case headerValue:
			value = f.Bytes
		case headerRawValue:
			raw = f.Bytes
		}
	}
	if len(raw) > 0 {
		value = raw
	}
	switch string(key) {
	case ":status":
		m.status = value
	case "content-type":
		m.sse = string(value) == openai.EventStream
	case envoy.RefusedHeader:
		m.refused = true
	}
	return f.Err()
}

// attributes takes one entry of the map of attributes: the key is who evaluated them, the value a Struct.
func (m *message) attributes(b []byte) error {
	var of attributes
	key, err := mapEntry(b, func(b []byte) error { return each(b, structFields, of.field) })
	if string(key) == envoy.AttributesKey {
		m.of = of
	}
	return err
}

// field takes one entry of a Struct's map.
func (a *attributes) field(b []byte) error {
	key, v, err := member(b)
	switch string(key) {
	case envoy.IDAttribute:
		a.id = v.text
	case envoy.PathAttribute:
		a.path = v.text
	case envoy.ClusterAttribute:
		a.cluster = v.text
	case envoy.UpstreamAttribute:
		a.upstream = v.text
	}
	return err
}
