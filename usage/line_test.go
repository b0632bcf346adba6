package usage

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

func TestLine(t *testing.T) {
	line := appendLine(nil, &usagev1.Record{Id: "a/usage", Sequence: 1})
	line = line[:len(line)-1]
	if _, _, err := parseLine(line); err != nil {
		t.Fatal(err)
	}
	for i := range line { // CRC-32C finds every change of one byte
		bad := bytes.Clone(line)
		bad[i] ^= 1
		if r, _, err := parseLine(bad); err == nil {
			t.Errorf("byte %d changed: accepted as %v", i, r)
		}
	}
	for n := range line {
		if _, _, err := parseLine(line[:n]); err == nil {
			t.Errorf("cut after %d bytes: accepted", n)
		}
	}
	zero := appendLine(nil, &usagev1.Record{Id: "a/usage"})
	if _, _, err := parseLine(zero[:len(zero)-1]); err == nil {
		t.Error("sequence 0: accepted")
	}
}

// Whatever is accepted is written back as a line that says the same.
func FuzzParseLine(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		line := appendLine(nil, randomRecord(rng))
		f.Add(line[:len(line)-1])
	}
	for _, seed := range []string{"", "00000000 ", "00000000 {}", "ABCDEF01 {\"sequence\":1}", "e3069283 123456789", "\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		fuzzed(t, line)
		// The check sum stops nearly everything: try the same content under the right one, too.
		fuzzed(t, summed(line))
	})
}

func fuzzed(t *testing.T, line []byte) {
	r, _, err := parseLine(line)
	if err != nil {
		return
	}
	again := appendLine(nil, r)
	r2, _, err := parseLine(again[:len(again)-1])
	if err != nil {
		t.Fatalf("%q was accepted, its own form is not: %q: %v", line, again, err)
	}
	if !proto.Equal(r, r2) {
		t.Fatalf("%v became %v", r, r2)
	}
}

// summed is body as a line.
func summed(body []byte) []byte {
	sum := castagnoli(body)
	line := make([]byte, 0, len(body)+sumLen)
	for shift := 28; shift >= 0; shift -= 4 {
		line = append(line, hexDigits[sum>>shift&15])
	}
	return append(append(line, ' '), body...)
}
