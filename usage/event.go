package usage

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/spokegate/spokegate/openai"
)

//go:generate go test -run TestSchemaIsCurrent . -update

// The form of an event: CloudEvents 1.0 over Kafka in binary mode. The attributes are headers, the record is the value and
// the team is the key, so that the records of a team stay in order. Kafka's own time is that of shipping: were it the
// record's, a topic that keeps records for a week would drop at once what a longer outage has held back.
const (
	// EventTypePrefix and the kind make the type of an event, such as spokegate.usage.v1.
	eventTypePrefix, eventTypeSuffix = "spokegate.", ".v1"
	// DataSchema names the form of the value: the JSON of [AppendJSON], as api/usage/v1/record.schema.json describes it. Members
	// are only added; a new number means a form that old readers cannot read.
	DataSchema = "urn:spokegate:schema:usage-record:1"
)

type header = kafka.Header

var (
	contentType = header{Key: "content-type", Value: []byte("application/json")}
	specVersion = header{Key: "ce_specversion", Value: []byte("1.0")}
	dataSchema  = header{Key: "ce_dataschema", Value: []byte(DataSchema)}
)

// shippedKinds have a topic each.
var shippedKinds = []string{KindAdmitted, KindServed, KindUsage, KindBalance, KindRejected}

// route is where the records of a kind go.
type route struct {
	kind  string
	topic string // the end of its name
}

var routes = func() map[string]route {
	m := map[string]route{
		KindCheckpoint: {KindCheckpoint, KindBalance}, KindEngine: {KindEngine, KindBalance}, KindProbe: {KindProbe, KindServed},
	}
	for _, kind := range shippedKinds {
		m[kind] = route{kind, kind}
	}
	return m
}()

// sequenceDigits are the digits of ce_sequence, zero-padded so that it sorts as text. It counts within one epoch of the source.
const sequenceDigits = 20

var errIncomplete = errors.New("a record without id, source or sequence")

// fields of a record that its event's attributes come from.
type fields struct {
	id, kind, source, sequence, admission, team, admitted, ended []byte
}

// add makes an event of a line. at is its place in buf.
func (c *chunk) add(at int, line []byte) error {
	body, _, err := checkLine(line)
	if err != nil {
		return err
	}
	f := c.read(body)
	if len(f.id) == 0 || len(f.source) == 0 || len(f.sequence) == 0 {
		return errIncomplete
	}
	to, is := routes[string(f.kind)]
	if !is {
		return fmt.Errorf("a record of kind %q, which has no topic", f.kind)
	}
	e := event{route: to, key: f.team, value: body, line: line, offset: c.offset + int64(at)}
	e.headers = c.headers(&f, e.kind)
	c.events = append(c.events, e)
	return nil
}

// read picks the fields out of a record. The check sum says that the JSON is what AppendJSON made.
func (c *chunk) read(body []byte) fields {
	f := fields{team: []byte{}} // not nil: Kafka refuses a record without a key where it keeps the last one of each
	openai.Each(body, func(key, v []byte) bool {
		switch string(key) {
		case `"id"`:
			f.id = c.string(v)
		case `"kind"`:
			f.kind = c.string(v)
		case `"source"`:
			f.source = c.string(v)
		case `"sequence"`:
			f.sequence = v
		case `"admission"`:
			f.admission = c.string(v)
		case `"team"`:
			f.team = c.string(v)
		case `"admitted_at"`:
			f.admitted = c.string(v)
		case `"ended_at"`:
			f.ended = c.string(v)
		}
		return true
	})
	return f
}

// string decodes a JSON string; of null it makes an empty one.
func (c *chunk) string(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	if in := v[1 : len(v)-1]; bytes.IndexByte(in, '\\') < 0 {
		return in
	}
	start := len(c.text)
	c.text = openai.Unquote(c.text, v)
	return c.text[start:]
}

// headers are the attributes of an event. One that has no value is left out: the specification has no empty ones.
func (c *chunk) headers(f *fields, kind string) []header {
	start := len(c.head)
	c.head = append(c.head, contentType, specVersion,
		header{Key: "ce_id", Value: f.id},
		header{Key: "ce_source", Value: f.source},
		header{Key: "ce_type", Value: eventTypes[kind]},
		dataSchema,
		header{Key: "ce_sequence", Value: c.padded(f.sequence)})
	c.optional("ce_subject", f.admission)
	c.optional("ce_partitionkey", f.team)
	if len(f.ended) > 0 {
		c.optional("ce_time", f.ended)
	} else {
		c.optional("ce_time", f.admitted)
	}
	return c.head[start:len(c.head):len(c.head)]
}

func (c *chunk) optional(key string, value []byte) {
	if len(value) > 0 {
		c.head = append(c.head, header{Key: key, Value: value})
	}
}

// padded fills a number with zeros on the left.
func (c *chunk) padded(digits []byte) []byte {
	start := len(c.text)
	for range sequenceDigits - len(digits) {
		c.text = append(c.text, '0')
	}
	c.text = append(c.text, digits...)
	return c.text[start:]
}

var eventTypes = func() map[string][]byte {
	types := map[string][]byte{}
	for kind := range routes {
		types[kind] = []byte(eventTypePrefix + kind + eventTypeSuffix)
	}
	return types
}()
