package usage

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

func TestAppendJSONGolden(t *testing.T) {
	r := &usagev1.Record{
		Id: "a1/usage", Kind: KindUsage, Source: "door/main", Epoch: 7, Sequence: 1, Admission: "a1", Key: "k", Team: "t",
		Model: "m", Revision: 1 << 60, Operation: "chat", ClientRequestId: "x\"\\\n\x01é\xff", Attempt: 2, Stream: true,
		PromptTokens: proto.Int64(0), CompletionTokens: proto.Int64(1<<62 + 1), CountedFrom: CountedEngine,
		Outcome: OutcomeComplete, Anomalies: []string{"a", "b"}, Status: proto.Uint32(200), ResponseBytes: proto.Int64(9),
		AdmittedAt: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.FixedZone("", 3600))),
	}
	want := `{"id":"a1/usage","kind":"usage","source":"door/main","epoch":7,"sequence":1,"previous":"","admission":"a1","key":"k","team":"t",` +
		`"model":"m","endpoint":"","spoke":"","worker":"","revision":1152921504606846976,"operation":"chat",` +
		`"client_request_id":"x\"\\\u000a\u0001é` + "\uFFFD" + `","attempt":2,"stream":true,"asked_model":null,"choices":null,"prompt_tokens":0,"cached_tokens":null,` +
		`"completion_tokens":4611686018427387905,"reasoning_tokens":null,"counted_from":"engine","price":null,"cost":null,"outcome":"complete",` +
		`"anomalies":["a","b"],"status":200,"request_bytes":null,"response_bytes":9,` +
		`"admitted_at":"2026-01-02T02:04:05.6Z","first_byte_at":null,"ended_at":null,"checkpoint":null,"engine_epoch":"","engine":null,"rejection":null,"balance":null}`
	if got := string(AppendJSON(nil, r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Equal labels are equal bytes, which a chain of digests needs; and a record without any is what it was before there were some.
func TestLabels(t *testing.T) {
	r := &usagev1.Record{Labels: map[string]string{"b": "2", "a\"": "=1;x", "c": ""}}
	if got, want := string(AppendJSON(nil, r)), `"asked_model":null,"labels":{"a\"":"=1;x","b":"2","c":""},"choices":null,"prompt_tokens":null`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
	if got := string(AppendJSON(nil, &usagev1.Record{Labels: map[string]string{}})); strings.Contains(got, "labels") {
		t.Error(got)
	}
}

// A field added to the proto must not be forgotten in the JSON.
func TestAppendJSONHasEveryFieldInOrder(t *testing.T) {
	decoder := json.NewDecoder(strings.NewReader(string(AppendJSON(nil, &usagev1.Record{Labels: map[string]string{"a": "b"}}))))
	var names []string
	depth := 0
	for expectName := true; ; {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if d, ok := token.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
			expectName = depth == 1
			continue
		}
		if depth == 1 && expectName {
			names = append(names, token.(string))
		}
		expectName = !expectName
	}
	var want []string
	fields := (&usagev1.Record{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		want = append(want, string(fields.Get(i).Name()))
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("members (-proto +json):\n%s", diff)
	}
}

// protojson is the oracle: what is written reads back as the same message.
func TestJSONRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		r := randomRecord(rng)
		line := AppendJSON(nil, r)
		if strings.ContainsRune(string(line), '\n') {
			t.Fatalf("a line feed in %s", line)
		}
		got, err := ParseJSON(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(r, got, protocmp.Transform()); diff != "" {
			t.Fatalf("%s\n%s", line, diff)
		}
	}
}

func TestParseJSON(t *testing.T) {
	for name, in := range map[string]string{
		"empty": ``, "array": `[]`, "number for a string": `{"id":1}`, "fraction": `{"prompt_tokens":1.5}`,
		"negative sequence": `{"sequence":-1}`, "twice": `{"id":"a","id":"b"}`, "bytes after": `{} {}`, "time": `{"ended_at":"yesterday"}`,
	} {
		if r, err := ParseJSON([]byte(in)); err == nil {
			t.Errorf("%s: %q gives %v, an error is expected", name, in, r)
		}
	}
	r, err := ParseJSON([]byte(`{"id":"a","cost_micros":12,"prompt_tokens":null}`))
	if err != nil || r.Id != "a" || r.PromptTokens != nil {
		t.Errorf("a member of a newer version: %v, %v", r, err)
	}
}

// randomRecord has random content in every field, absent ones among them.
func randomRecord(rng *rand.Rand) *usagev1.Record {
	alphabet := []rune("ab\"\\\n\x00\x1f\x7fé\u2028\U0001F600/")
	str := func() string {
		s := make([]rune, rng.IntN(6))
		for i := range s {
			s[i] = alphabet[rng.IntN(len(alphabet))]
		}
		return string(s)
	}
	num := func() *int64 {
		if rng.IntN(3) == 0 {
			return nil
		}
		return proto.Int64(int64(rng.Uint64()) >> rng.IntN(64))
	}
	at := func() *timestamppb.Timestamp {
		if rng.IntN(3) == 0 {
			return nil
		}
		return &timestamppb.Timestamp{Seconds: rng.Int64N(4e9), Nanos: int32(rng.IntN(1e9))}
	}
	r := &usagev1.Record{
		Id: str(), Kind: str(), Source: str(), Epoch: rng.Uint64(), Sequence: rng.Uint64(), Admission: str(), Key: str(), Team: str(),
		Model: str(), Endpoint: str(), Spoke: str(), Worker: str(), Revision: rng.Uint64(), Operation: str(), ClientRequestId: str(),
		Attempt: rng.Uint32(), Stream: rng.IntN(2) == 0, PromptTokens: num(), CachedTokens: num(), CompletionTokens: num(),
		ReasoningTokens: num(), CountedFrom: str(), Outcome: str(), RequestBytes: num(), ResponseBytes: num(),
		AdmittedAt: at(), FirstByteAt: at(), EndedAt: at(),
	}
	r.Previous = str()
	for _, part := range []protoreflect.Name{"checkpoint", "price", "engine", "rejection", "balance"} {
		if m := r.ProtoReflect(); rng.IntN(3) == 0 {
			randomPart(m.Mutable(m.Descriptor().Fields().ByName(part)).Message(), str, rng)
		}
	}
	r.Cost, r.EngineEpoch = num(), str()
	for range rng.IntN(3) {
		r.Anomalies = append(r.Anomalies, str())
	}
	for range rng.IntN(3) {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[str()] = str()
	}
	if rng.IntN(2) == 0 {
		r.AskedModel = proto.String(str())
	}
	if rng.IntN(2) == 0 {
		r.Choices = proto.Uint32(rng.Uint32())
	}
	if rng.IntN(2) == 0 {
		r.Status = proto.Uint32(rng.Uint32())
	}
	return r
}

// randomPart gives every field of a record's part a value, so that none can be forgotten in the JSON.
func randomPart(m protoreflect.Message, str func() string, rng *rand.Rand) {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); f.Kind() {
		case protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(str()))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(rng.IntN(2) == 0))
		case protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOfUint64(rng.Uint64()))
		case protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(int64(rng.Uint64())))
		case protoreflect.MessageKind:
			m.Set(f, protoreflect.ValueOfMessage((&timestamppb.Timestamp{Seconds: rng.Int64N(4e9), Nanos: int32(rng.IntN(1e9))}).ProtoReflect()))
		default:
			panic(f.FullName())
		}
	}
}
