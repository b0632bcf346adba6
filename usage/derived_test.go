package usage

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

func TestDerive(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	after := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(at.Add(d)) }
	for name, c := range map[string]struct {
		r    *usagev1.Record
		want string // what the JSON ends with
	}{
		"a stream": {&usagev1.Record{AdmittedAt: after(0), FirstByteAt: after(120*time.Millisecond + 500*time.Microsecond), EndedAt: after(2 * time.Second), CompletionTokens: proto.Int64(333)},
			`,"ttfb_ms":121,"duration_ms":2000,"milli_tokens_per_second":166500}`},
		"no answer":             {&usagev1.Record{AdmittedAt: after(0), EndedAt: after(1400 * time.Microsecond)}, `,"ttfb_ms":null,"duration_ms":1,"milli_tokens_per_second":null}`},
		"nothing was made":      {&usagev1.Record{AdmittedAt: after(0), FirstByteAt: after(1), EndedAt: after(3), CompletionTokens: proto.Int64(0)}, `,"ttfb_ms":0,"duration_ms":0,"milli_tokens_per_second":0}`},
		"in no time":            {&usagev1.Record{AdmittedAt: after(0), EndedAt: after(0), CompletionTokens: proto.Int64(3)}, `,"ttfb_ms":null,"duration_ms":0,"milli_tokens_per_second":null}`},
		"another clock":         {&usagev1.Record{AdmittedAt: after(0), FirstByteAt: after(-1), EndedAt: after(time.Second), CompletionTokens: proto.Int64(7)}, `,"ttfb_ms":null,"duration_ms":1000,"milli_tokens_per_second":7000}`},
		"of a worker":           {&usagev1.Record{FirstByteAt: after(0), EndedAt: after(1), CompletionTokens: proto.Int64(7)}, `,"ttfb_ms":null,"duration_ms":null,"milli_tokens_per_second":null}`},
		"too fast for a number": {&usagev1.Record{AdmittedAt: after(0), EndedAt: after(1), CompletionTokens: proto.Int64(math.MaxInt64)}, `,"ttfb_ms":null,"duration_ms":0,"milli_tokens_per_second":null}`},
	} {
		got := AppendDerivedJSON([]byte("before "), c.r)
		body := strings.TrimPrefix(string(got), "before ")
		if !strings.HasSuffix(body, c.want) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %s", name, body)
		}
		if again, err := ParseJSON([]byte(body)); err != nil || !proto.Equal(again, c.r) {
			t.Errorf("%s: read again as %v, %v", name, again, err)
		}
	}
}

func TestSpeedAgainstRat(t *testing.T) {
	rnd := rand.New(rand.NewPCG(61, 61))
	for range 20_000 {
		tokens, took := rnd.Int64()>>rnd.IntN(63), 1+rnd.Int64()>>(2+rnd.IntN(60))
		want := new(big.Int).Mul(big.NewInt(tokens), big.NewInt(1e12))
		want.Quo(want, big.NewInt(took))
		r := &usagev1.Record{AdmittedAt: &timestamppb.Timestamp{}, EndedAt: timestamppb.New(time.Unix(0, took)), CompletionTokens: &tokens}
		switch got := Derive(r).Speed; {
		case got == nil && want.IsInt64(), got != nil && want.Cmp(big.NewInt(*got)) != 0:
			t.Fatalf("%d tokens in %d ns: %v, want %v", tokens, took, got, want)
		}
	}
}
