package extauthz

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spokegate/spokegate/envoy"
)

// questionOf is the oracle: the question in a CheckRequest that protobuf has read.
func questionOf(req *authv3.CheckRequest) question {
	a := req.GetAttributes()
	h := a.GetRequest().GetHttp()
	headers := h.GetHeaders()
	length, err := strconv.ParseInt(headers["content-length"], 10, 64)
	if err != nil {
		length = -1
	}
	body := h.GetRawBody()
	if len(body) == 0 {
		body = []byte(h.GetBody())
	}
	return question{
		id: headers["x-request-id"], clientRequestID: headers[envoy.ClientRequestIDHeader], clientTrace: headers[envoy.ClientTraceHeader], clientAddress: headers[envoy.ClientAddressHeader],
		method: h.GetMethod(), target: h.GetPath(), host: h.GetHost(), source: a.GetSource().GetAddress().GetSocketAddress().GetAddress(),
		authorization: headers["authorization"], apiKey: headers["x-api-key"], contentType: headers["content-type"],
		contentEncoding: headers["content-encoding"], contentLength: length, body: body,
	}
}

func same(a, b question) bool {
	if len(a.body) == 0 && len(b.body) == 0 {
		a.body, b.body = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// asRead is protobuf's own reading of the fields that we read, of which the rest is unknown and so skipped unread.
var asRead = func() protoreflect.MessageDescriptor {
	const text, raw = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES
	field := func(n int32, t descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: new("f" + strconv.Itoa(int(n))), Number: new(n), Type: &t,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	sub := func(n int32, name string) *descriptorpb.FieldDescriptorProto {
		f := field(n, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
		f.TypeName = new(".x." + name)
		return f
	}
	message := func(name string, fs ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fs}
	}
	headers := sub(httpHeaders, "Entry") // on the wire the same as a map
	headers.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	http := message("Http", field(httpID, text), field(httpMethod, text), headers, field(httpPath, text), field(httpHost, text), field(httpScheme, text),
		field(httpQuery, text), field(httpFragment, text), field(httpProtocol, text), field(httpBody, text), field(httpRawBody, raw))
	address := message("Address", sub(addressSocket, "Socket"), field(addressPipe, raw), field(addressInternal, raw))
	address.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: new("address")}}
	for _, f := range address.Field {
		f.OneofIndex = new(int32(0))
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: new("x.proto"), Package: new("x"), Syntax: new("proto3"), MessageType: []*descriptorpb.DescriptorProto{
		message("Check", sub(checkAttributes, "Attributes")), message("Attributes", sub(attributesSource, "Peer"), sub(attributesRequest, "Request")),
		message("Peer", sub(peerAddress, "Address")), address, message("Socket", field(socketAddress, text)), message("Request", sub(requestHTTP, "Http")), http,
		message("Entry", field(entryKey, text), field(entryValue, text)),
	}}, nil)
	if err != nil {
		panic(err)
	}
	return file.Messages().ByName("Check")
}()

// checkReading holds our reading against protobuf's: what it refuses in fields that we read, we refuse, and nothing else;
// what it accepts, we read alike.
func checkReading(t *testing.T, b []byte) {
	t.Helper()
	got, err := parse(b)
	narrow := dynamicpb.NewMessage(asRead)
	if want := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, narrow); (err == nil) != (want == nil) {
		t.Fatalf("%x: ours says %v, protobuf %v", b, err, want)
	}
	var whole authv3.CheckRequest
	if accepted := proto.Unmarshal(b, &whole) == nil; accepted && err != nil {
		t.Fatalf("%x: ours says %v, protobuf accepts", b, err)
	} else if accepted && !same(got, questionOf(&whole)) {
		t.Fatalf("%x:\n%+v, protobuf has\n%+v", b, got, questionOf(&whole))
	}
	if err != nil {
		return
	}
	var read authv3.CheckRequest
	if again, err := proto.Marshal(withoutPipes(narrow)); err != nil || proto.Unmarshal(again, &read) != nil {
		t.Fatalf("%x: what is read of it is no CheckRequest: %v", b, err)
	}
	if want := questionOf(&read); !same(got, want) {
		t.Fatalf("%x:\n%+v, protobuf has\n%+v", b, got, want)
	}
}

// withoutPipes drops an address that is no socket, which is not read and may hold anything.
func withoutPipes(check *dynamicpb.Message) *dynamicpb.Message {
	var m protoreflect.Message = check
	for _, n := range []protoreflect.FieldNumber{checkAttributes, attributesSource} {
		f := m.Descriptor().Fields().ByNumber(n)
		if !m.Has(f) {
			return check
		}
		m = m.Mutable(f).Message()
	}
	f := m.Descriptor().Fields().ByNumber(peerAddress)
	if !m.Get(f).Message().Has(f.Message().Fields().ByNumber(addressSocket)) {
		m.Clear(f)
	}
	return check
}

// message writes fields that have a length: number, bytes, number, bytes.
func message(parts ...any) []byte {
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		b = protowire.AppendTag(b, protowire.Number(parts[i].(int)), protowire.BytesType)
		switch v := parts[i+1].(type) {
		case string:
			b = protowire.AppendString(b, v)
		case []byte:
			b = protowire.AppendBytes(b, v)
		}
	}
	return b
}

func httpRequest(parts ...any) []byte {
	return message(checkAttributes, message(attributesRequest, message(requestHTTP, message(parts...))))
}

func from(address ...any) []byte {
	return message(checkAttributes, message(attributesSource, message(peerAddress, message(address...))))
}

// TestReading has each rule of protobuf's that a reader can get wrong.
func TestReading(t *testing.T) {
	id := func(v string) []byte { return message(entryKey, "x-request-id", entryValue, v) }
	socket := func(ip string) []byte { return message(socketAddress, ip) }
	group := protowire.AppendTag(protowire.AppendTag(nil, 7, protowire.StartGroupType), 7, protowire.EndGroupType)
	for name, c := range map[string]struct {
		wire []byte
		want *question // nil: refused
	}{
		"nothing":               {nil, &question{}},
		"last string counts":    {httpRequest(httpMethod, "GET", httpMethod, "POST"), &question{method: "POST"}},
		"last header counts":    {httpRequest(httpHeaders, id("a"), httpHeaders, id("b")), &question{id: "b"}},
		"last value counts":     {httpRequest(httpHeaders, message(entryValue, "a", entryKey, "x-request-id", entryValue, "b")), &question{id: "b"}},
		"entry without value":   {httpRequest(httpHeaders, id("a"), httpHeaders, message(entryKey, "x-request-id")), &question{}},
		"entry without key":     {httpRequest(httpHeaders, message(entryValue, "x-request-id")), &question{}},
		"last body counts":      {httpRequest(httpRawBody, "a", httpRawBody, "b"), &question{body: []byte("b")}},
		"body may be any bytes": {httpRequest(httpRawBody, "\xff"), &question{body: []byte("\xff")}},
		"body as a string":      {httpRequest(httpBody, "a"), &question{body: []byte("a")}},
		"body as both":          {httpRequest(httpRawBody, "b", httpBody, "a"), &question{body: []byte("b")}},
		"no string":             {httpRequest(httpBody, "\xff"), nil},
		"messages are merged":   {slices.Concat(httpRequest(httpMethod, "GET", httpHost, "h"), httpRequest(httpMethod, "POST")), &question{method: "POST", host: "h"}},
		"unknown fields":        {slices.Concat(message(99, "x"), group, protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 5), httpRequest(httpHost, "h")), &question{host: "h"}},
		"another wire type":     {protowire.AppendVarint(protowire.AppendTag(nil, checkAttributes, protowire.VarintType), 1), &question{}},
		"source":                {from(addressSocket, socket("10.0.0.1")), &question{source: "10.0.0.1"}},
		"source by a pipe":      {from(addressSocket, socket("10.0.0.1"), addressPipe, "x"), &question{}},
		"source after a pipe":   {from(addressPipe, "x", addressSocket, socket("10.0.0.1")), &question{source: "10.0.0.1"}},
		"cut off":               {httpRequest(httpMethod, "POST")[:11], nil},
		"body longer than told": {message(checkAttributes, message(attributesRequest, []byte{requestHTTP<<3 | 2, 100, 1})), nil},
		"field number 0":        {[]byte{2, 0}, nil},
		"field number too high": {protowire.AppendBytes(protowire.AppendVarint(nil, 1<<32|2), nil), nil},
		"end of no group":       {protowire.AppendTag(nil, 7, protowire.EndGroupType), nil},
		"group without end":     {protowire.AppendTag(nil, 7, protowire.StartGroupType), nil},
		"path not in UTF-8":     {httpRequest(httpPath, "\xff"), nil},
		"scheme not in UTF-8":   {httpRequest(httpScheme, "\xff"), nil},
		"name not in UTF-8":     {httpRequest(httpHeaders, message(entryKey, "\xff")), nil},
		"value not in UTF-8":    {httpRequest(httpHeaders, message(entryKey, "unread", entryValue, "\xff")), nil},
		"IP not in UTF-8":       {from(addressSocket, socket("\xff")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			checkReading(t, c.wire)
			got, err := parse(c.wire)
			if c.want == nil {
				if err == nil {
					t.Fatalf("read as %+v", got)
				}
				return
			}
			c.want.contentLength = -1
			if err != nil || !same(got, *c.want) {
				t.Errorf("read as %+v, %v", got, err)
			}
		})
	}
}

// example is a request as Envoy writes one.
func example(t testing.TB, body []byte) []byte {
	b, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "192.0.2.7", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 40000}}}}},
		Destination: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/p"}}}},
		Request: &authv3.AttributeContext_Request{Time: timestamppb.New(time.Unix(1, 2)), Http: &authv3.AttributeContext_HttpRequest{
			Id: "17", Method: "POST", Path: "/v1/chat/completions?a=b", Host: "door", Scheme: "http", Protocol: "HTTP/1.1", Size: int64(len(body)), RawBody: body,
			Headers: map[string]string{":method": "POST", "authorization": "Bearer k", "x-api-key": "k", "content-type": "application/json", "content-encoding": "gzip",
				"content-length": strconv.Itoa(len(body)), "x-request-id": "5b1f6c0e", envoy.ClientRequestIDHeader: "mine", envoy.ClientTraceHeader: "00-1-1-01", envoy.ClientAddressHeader: "192.0.2.1"}}},
		MetadataContext: &corev3.Metadata{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReadingOfChangedBytes changes an example in random places: cut, doubled, overwritten.
func TestReadingOfChangedBytes(t *testing.T) {
	r, good := rand.New(rand.NewPCG(1, 2)), example(t, []byte(`{"model":"m"}`))
	checkReading(t, good)
	for range 20_000 {
		b := slices.Clone(good)
		for range 1 + r.IntN(3) {
			i := r.IntN(len(b))
			switch r.IntN(4) {
			case 0:
				b = slices.Insert(b, i, b[i:min(len(b), i+r.IntN(40))]...)
			case 1:
				b = slices.Delete(b, i, min(len(b), i+r.IntN(5)))
			default:
				b[i] = byte(r.Uint32())
			}
			if len(b) == 0 {
				break
			}
		}
		checkReading(t, b)
	}
}

func FuzzReading(f *testing.F) {
	f.Add(example(f, []byte("{}")))
	f.Add(from(addressSocket, message(socketAddress, "::1"), addressPipe, "x"))
	f.Fuzz(checkReading)
}
