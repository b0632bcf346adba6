package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

// KindKey is the kind of a single key: see [ParseEntry]. Keys travel in shards.
const KindKey = "Key"

// MaxEntry bounds one element of a policy that comes by itself, in bytes.
const MaxEntry = 1 << 20

// lists are the names of a File's lists, by the kind of their elements.
var lists = map[string]string{
	KindEndpoint: "endpoints", KindIssuer: "issuers", KindKey: "keys", KindModel: "models", KindPlatform: "platform", KindTeam: "teams",
}

// ParseEntry reads one element of a policy file that comes by itself, as JSON with the file's members: of a kind's list, or the
// platform. It is as strict as [Parse], but for what refers to other elements: that is seen when all are compiled. An error is
// [Problems], whose paths are those of a file.
func ParseEntry(kind string, body []byte) (proto.Message, error) {
	p := &parse{decoder: decoder{reader: &reader{}, places: map[any]*node{}}}
	path := lists[kind]
	root, err := nodeOfJSON(body)
	if err != nil {
		return nil, Problems{{Path: path, Text: err.Error()}}
	}
	if kind != KindPlatform {
		path = label(path, root.label(), 0)
	}
	m := p.message(kind, root, path)
	if len(p.problems) > 0 {
		for i := range p.problems {
			p.problems[i].Line, p.problems[i].Column = 0, 0 // JSON on one line has none worth telling
		}
		return nil, p.problems.err()
	}
	return m, nil
}

// message decodes a node as an element of a kind.
func (p *parse) message(kind string, root *node, path string) proto.Message {
	f := &File{}
	switch kind {
	case KindPlatform:
		f.Platform = entryOf[PlatformEntry](p, root, path)
	case KindEndpoint:
		f.Endpoints = []*EndpointEntry{entryOf[EndpointEntry](p, root, path)}
	case KindModel:
		f.Models = []*ModelEntry{entryOf[ModelEntry](p, root, path)}
	case KindTeam:
		f.Teams = []*TeamEntry{entryOf[TeamEntry](p, root, path)}
	case KindIssuer:
		f.Issuers = []*IssuerEntry{entryOf[IssuerEntry](p, root, path)}
	case KindKey:
		return p.key(entryOf[KeyEntry](p, root, path), path)
	}
	set, _ := p.set(f)
	switch kind {
	case KindPlatform:
		return set.Platform
	case KindEndpoint:
		return set.Endpoints[0]
	case KindModel:
		return set.Models[0]
	case KindTeam:
		return set.Teams[0]
	case KindIssuer:
		return set.Issuers[0]
	}
	p.add(1, 1, path, "there is no such kind of element")
	return (*policyv1.Platform)(nil)
}

func entryOf[E any](p *parse, root *node, path string) *E {
	e := new(E)
	p.entry(root, path, reflect.ValueOf(e))
	return e
}

// PlainJSON says whether a text is one value of JSON that can be read in one way only: no member is there twice.
func PlainJSON(body []byte) error {
	_, err := nodeOfJSON(body)
	return err
}

// nodeOfJSON reads one value of JSON.
func nodeOfJSON(body []byte) (*node, error) {
	if len(body) > MaxEntry {
		return nil, errors.New("has more than " + strconv.Itoa(MaxEntry) + " bytes")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	n, err := jsonValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("is not one value of JSON: something stands behind it")
	}
	return n, nil
}

func jsonValue(d *json.Decoder, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("is nested more than " + strconv.Itoa(maxDepth) + " levels deep")
	}
	t, err := d.Token()
	if err != nil {
		return nil, errors.New("is not JSON") // err may repeat what stands there
	}
	n := &node{line: 1, col: 1}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(t)
	case nil:
		n.kind = nothing
	case json.Delim:
		if n.kind = mapping; t == '[' {
			n.kind = list
		}
		return n, n.fill(d, depth)
	}
	return n, nil
}

// fill reads what is in a list or a mapping, up to its end.
func (n *node) fill(d *json.Decoder, depth int) error {
	for d.More() {
		var m member
		if n.kind == mapping {
			t, err := d.Token()
			if err != nil {
				return errors.New("is not JSON")
			}
			m = member{name: t.(string), line: 1, col: 1} // JSON has no others
			if n.member(m.name) != nil {
				return errors.New("is not plain JSON: " + quote(m.name) + " is given twice")
			}
		}
		v, err := jsonValue(d, depth+1)
		if err != nil {
			return err
		}
		if m.value = v; n.kind == mapping {
			n.members = append(n.members, m)
		} else {
			n.items = append(n.items, v)
		}
	}
	if _, err := d.Token(); err != nil {
		return errors.New("is not JSON")
	}
	return nil
}

// Entry is one element of a policy file by itself: see [ParseEntry].
type Entry struct {
	Kind, Name string
	Body       []byte // JSON
}

// Entries reads a policy file as [Parse] does, and takes it apart.
func Entries(name string, yaml []byte) ([]Entry, error) {
	if _, err := Parse(name, yaml); err != nil {
		return nil, err
	}
	root := (&reader{}).read(yaml)
	var out []Entry
	for _, kind := range append([]string{KindKey}, Kinds...) {
		switch n := root.member(lists[kind]); {
		case n == nil || kind == KindKeyShard:
		case kind == KindPlatform:
			out = append(out, Entry{Kind: kind, Body: n.json(nil)})
		default:
			for _, item := range n.items {
				out = append(out, Entry{Kind: kind, Name: item.label(), Body: item.json(nil)})
			}
		}
	}
	return out, nil
}

// json appends a node as JSON.
func (n *node) json(out []byte) []byte {
	switch n.kind {
	case list:
		out = append(out, '[')
		for i, item := range n.items {
			if i > 0 {
				out = append(out, ',')
			}
			out = item.json(out)
		}
		return append(out, ']')
	case mapping:
		out = append(out, '{')
		for i, m := range n.members {
			if i > 0 {
				out = append(out, ',')
			}
			out = m.value.json(append(jsonText(out, m.name), ':'))
		}
		return append(out, '}')
	case boolean:
		return append(out, strings.ToLower(n.text)...)
	case nothing:
		return append(out, "null"...)
	case number:
		if json.Valid([]byte(n.text)) {
			return append(out, n.text...)
		}
	}
	return jsonText(out, n.text)
}

func jsonText(out []byte, s string) []byte {
	b, err := plain(s)
	if err != nil {
		return append(out, `""`...) // not reached: every text has JSON
	}
	return append(out, b...)
}
