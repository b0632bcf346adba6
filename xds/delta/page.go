package delta

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// Page is a DeltaDiscoveryResponse but for its nonce, encoded once for all who get it. The bodies in it are those of the cut,
// not copies, so that a page costs little however many spokes hold it.
type Page struct {
	Kind  string
	parts mem.BufferSlice
	Bytes int
}

// Fields of envoy.service.discovery.v3.DeltaDiscoveryResponse, of Resource in it, and of google.protobuf.Any in that.
const (
	fieldSystemVersion = 1
	fieldResources     = 2
	fieldTypeURL       = 4
	fieldNonce         = 5
	fieldRemoved       = 6

	fieldVersion  = 1
	fieldResource = 2
	fieldName     = 3

	fieldAnyType  = 1
	fieldAnyValue = 2
)

// Message is the page with a nonce: an encoded response.
func (p *Page) Message(nonce string) mem.BufferSlice {
	tail := protowire.AppendString(protowire.AppendTag(nil, fieldNonce, protowire.BytesType), nonce)
	out := make(mem.BufferSlice, 0, len(p.parts)+1)
	return append(append(out, p.parts...), mem.SliceBuffer(tail))
}

// Pages are the responses that bring resources of one kind, and tell which are gone, as part of a revision. An error names a
// resource that no spoke could receive.
func Pages(kind string, revision uint64, changed []policy.Resource, removed []policy.Ref) ([]*Page, error) {
	var out []*Page
	w := newWriter(kind, revision)
	next := func() {
		out = append(out, w.page())
		w = newWriter(kind, revision)
	}
	for _, r := range changed {
		if len(r.Body) > MostBytes-PageBytes/16 {
			return nil, fmt.Errorf("%s %s has %d bytes: more than a message may have", kind, r.Name, len(r.Body))
		}
		if w.bytes > 0 && w.bytes+len(r.Body) > PageBytes {
			next()
		}
		w.resource(r)
	}
	for _, r := range removed {
		if w.bytes > PageBytes {
			next()
		}
		w.removed(r.Name)
	}
	if w.bytes > 0 {
		next()
	}
	return out, nil
}

// Closing is the response that closes a cut.
func Closing(c *policy.Cut) (*Page, error) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(c.Revision())
	if err != nil {
		return nil, err
	}
	w := newWriter(KindRevision, c.Revision().GetNumber())
	w.resource(policy.Resource{Ref: policy.Ref{Kind: KindRevision, Name: RevisionName}, Version: Version(c), Body: body})
	return w.page(), nil
}

// writer puts a page together: what stands between bodies in one buffer, cut where a body goes.
type writer struct {
	kind  string
	parts mem.BufferSlice
	text  []byte // since the last body
	bytes int    // of resources and names so far
}

func newWriter(kind string, revision uint64) *writer {
	w := &writer{kind: kind}
	w.text = protowire.AppendString(protowire.AppendTag(w.text, fieldSystemVersion, protowire.BytesType), fmt.Sprint(revision))
	w.text = protowire.AppendString(protowire.AppendTag(w.text, fieldTypeURL, protowire.BytesType), TypeURL(kind))
	return w
}

// short is up to which length a body is copied: a slice of its own would cost more.
const short = 512

func (w *writer) resource(r policy.Resource) {
	kind := TypeURL(w.kind)
	value := protowire.SizeTag(fieldAnyValue) + protowire.SizeBytes(len(r.Body))
	any := protowire.SizeTag(fieldAnyType) + protowire.SizeBytes(len(kind)) + value
	whole := protowire.SizeTag(fieldVersion) + protowire.SizeBytes(len(r.Version)) + protowire.SizeTag(fieldName) +
		protowire.SizeBytes(len(r.Name)) + protowire.SizeTag(fieldResource) + protowire.SizeBytes(any)

	b := protowire.AppendVarint(protowire.AppendTag(w.text, fieldResources, protowire.BytesType), uint64(whole))
	b = protowire.AppendString(protowire.AppendTag(b, fieldVersion, protowire.BytesType), r.Version)
	b = protowire.AppendString(protowire.AppendTag(b, fieldName, protowire.BytesType), r.Name)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldResource, protowire.BytesType), uint64(any))
	b = protowire.AppendString(protowire.AppendTag(b, fieldAnyType, protowire.BytesType), kind)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldAnyValue, protowire.BytesType), uint64(len(r.Body)))
	w.bytes += len(r.Body) + whole - value
	if len(r.Body) <= short {
		w.text = append(b, r.Body...)
		return
	}
	w.parts = append(w.parts, mem.SliceBuffer(b), mem.SliceBuffer(r.Body))
	w.text = nil
}

func (w *writer) removed(name string) {
	w.text = protowire.AppendString(protowire.AppendTag(w.text, fieldRemoved, protowire.BytesType), name)
	w.bytes += len(name) + 2
}

func (w *writer) page() *Page {
	if len(w.text) > 0 {
		w.parts = append(w.parts, mem.SliceBuffer(w.text))
	}
	return &Page{Kind: w.kind, parts: w.parts, Bytes: w.parts.Len()}
}

// ReadRevision reads the body that Closing wrote.
func ReadRevision(body []byte) (*policyv1.Revision, error) {
	out := &policyv1.Revision{}
	if err := proto.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("the revision cannot be read: %w", err)
	}
	return out, nil
}
