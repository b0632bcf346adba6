package openai

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gzipped(t testing.TB, parts ...string) string {
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, p)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func zstandard(t testing.TB, parts ...string) string {
	var b []byte
	for _, p := range parts {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
		if err != nil {
			t.Fatal(err)
		}
		b = w.EncodeAll([]byte(p), b)
	}
	return string(b)
}

// skippable is a frame of zstd that holds nothing.
func skippable(n uint32) string {
	b := binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, n)
	return string(b) + strings.Repeat("x", int(n))
}

func TestDecodeBody(t *testing.T) {
	const plain = `{"model":"m","messages":[]}`
	long := strings.Repeat(plain, 10_000)
	gz, zs := gzipped(t, plain), zstandard(t, plain)
	for name, c := range map[string]struct {
		encoding, body, want string // want: the body, or the status
	}{
		"none":                       {"", plain, plain},
		"identity":                   {" Identity\t", plain, plain},
		"none, empty":                {"", "", ""},
		"gzip":                       {"gzip", gz, plain},
		"gzip, by its old name":      {"X-GZip", gz, plain},
		"gzip, long":                 {"gzip", gzipped(t, long), long},
		"gzip, members":              {"gzip", gzipped(t, plain, "", " \n"), plain + " \n"},
		"gzip, nothing in it":        {"gzip", gzipped(t, ""), ""},
		"gzip, no bytes":             {"gzip", "", "400"},
		"gzip, garbage after":        {"gzip", gz + "garbage that is longer than a header", "400"},
		"gzip, a byte after":         {"gzip", gz + "\x1f", "400"},
		"gzip, zeros after":          {"gzip", gz + strings.Repeat("\x00", 512), "400"},
		"gzip, a member cut":         {"gzip", gz + gz[:len(gz)-1], "400"},
		"gzip, no trailer":           {"gzip", gz[:len(gz)-8], "400"},
		"gzip, wrong checksum":       {"gzip", gz[:len(gz)-8] + "\x00\x00\x00\x00" + gz[len(gz)-4:], "400"},
		"gzip, wrong size":           {"gzip", gz[:len(gz)-4] + "\x00\x00\x00\x00", "400"},
		"gzip, but it is plain":      {"gzip", plain, "400"},
		"gzip, but it is zstd":       {"gzip", zs, "400"},
		"zstd":                       {"zstd", zs, plain},
		"zstd, in capitals":          {"ZSTD", zs, plain},
		"zstd, long":                 {"zstd", zstandard(t, long), long},
		"zstd, frames":               {"zstd", zstandard(t, plain, "", " \n"), plain + " \n"},
		"zstd, skippable frames":     {"zstd", skippable(0) + zs + skippable(20), plain},
		"zstd, no bytes":             {"zstd", "", "400"},
		"zstd, garbage after":        {"zstd", zs + "garbage that is longer than a header", "400"},
		"zstd, a byte after":         {"zstd", zs + "\x28", "400"},
		"zstd, three bytes after":    {"zstd", zs + zs[:3], "400"},
		"zstd, zeros after":          {"zstd", zs + strings.Repeat("\x00", 512), "400"},
		"zstd, a frame cut":          {"zstd", zs + zs[:len(zs)-1], "400"},
		"zstd, a skippable one cut":  {"zstd", zs + skippable(20)[:20], "400"},
		"zstd, wrong checksum":       {"zstd", zs[:len(zs)-4] + "\x00\x00\x00\x00", "400"},
		"zstd, but it is plain":      {"zstd", plain, "400"},
		"zstd, with a dictionary":    {"zstd", "\x28\xb5\x2f\xfd\x21\x07\x01\x09\x00\x00x", "400"},
		"zstd, window of a gigabyte": {"zstd", "\x28\xb5\x2f\xfd\x00\xa0\x09\x00\x00x", "400"},
		"brotli":                     {"br", plain, "415"},
		"deflate":                    {"deflate", plain, "415"},
		"twice":                      {"gzip, gzip", gzipped(t, gz), "415"},
		"twice, in two headers":      {"gzip,identity", gz, "415"},
	} {
		out, err := DecodeBody(c.encoding, []byte(c.body), 1<<20)
		got := string(out)
		if err != nil {
			got = fmt.Sprint(err.Status)
		}
		if got != c.want {
			t.Errorf("%s: got %.80q %v, want %.80q", name, got, err, c.want)
		}
		if refused := CheckEncoding(c.encoding); (refused != nil) != (c.want == "415") {
			t.Errorf("%s: %v on the header alone", name, refused)
		}
	}
}

// TestDecodeBodyCut: no beginning of a body is taken for the body.
func TestDecodeBodyCut(t *testing.T) {
	for encoding, body := range map[string]string{"gzip": gzipped(t, "one", strings.Repeat("two", 100)), "zstd": zstandard(t, strings.Repeat("one", 100))} {
		for n := range len(body) {
			out, err := DecodeBody(encoding, []byte(body[:n]), 1<<20)
			if err == nil && string(out) != "one" { // the first member is whole
				t.Errorf("%s: %d bytes of %d gave %q", encoding, n, len(body), out)
			}
		}
	}
}

func TestDecodeBodyCap(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	for encoding, body := range map[string]string{"": text, "gzip": gzipped(t, text[:500], text[500:]), "zstd": zstandard(t, text[:500], text[500:])} {
		for _, most := range []int64{0, 1, 499, 500, 501, 999, 1000, 1001} {
			out, err := DecodeBody(encoding, []byte(body), most)
			switch fits := most >= 1000; {
			case fits && (err != nil || string(out) != text):
				t.Errorf("%q, at most %d: %v", encoding, most, err)
			case !fits && (err == nil || err.Status != 413 || err.Code != "body_too_large"):
				t.Errorf("%q, at most %d: %v", encoding, most, err)
			}
		}
	}
}

// TestDecodeBodyBombs: a small body that unfolds to a great one, or that says so, costs about what may be decoded.
func TestDecodeBodyBombs(t *testing.T) {
	const most = 1 << 20
	zeros := strings.Repeat("\x00", 32<<20)
	for name, c := range map[string]struct{ encoding, body string }{
		"gzip":         {"gzip", gzipped(t, zeros)},
		"gzip members": {"gzip", strings.Repeat(gzipped(t, zeros[:1<<20]), 32)},
		"zstd":         {"zstd", zstandard(t, zeros)},
		"zstd frames":  {"zstd", strings.Repeat(zstandard(t, zeros[:1<<20]), 32)},
		// A frame that promises 2 GiB, and blocks that each repeat a byte 128 Ki times.
		"zstd by promise": {"zstd", "\x28\xb5\x2f\xfd\x80\x58\x00\x00\x00\x80" + strings.Repeat("\x02\x00\x10x", 10_000)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeBody(c.encoding, []byte(c.body), most)
		runtime.ReadMemStats(&after)
		if err == nil || err.Status != 413 {
			t.Errorf("%s: %v", name, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc - uint64(len(c.body)); grown > 4*most+3*maxWindow {
			t.Errorf("%s: %d bytes of memory", name, grown)
		}
	}
}

// TestDecodersAreReused: what one body left in a decoder shows in no other.
func TestDecodersAreReused(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		text := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(5000))
		encoding, body := "gzip", gzipped(t, text)
		if rng.IntN(2) == 0 {
			encoding, body = "zstd", zstandard(t, text)
		}
		cut := []byte(body)
		if rng.IntN(2) == 0 {
			cut = cut[:rng.IntN(len(cut))]
		}
		out, err := DecodeBody(encoding, cut, 1<<20)
		if whole := len(cut) == len(body); whole != (err == nil) || whole && string(out) != text {
			t.Fatalf("%s, %d bytes of %d: %d bytes, %v", encoding, len(cut), len(body), len(out), err)
		}
	}
}

// FuzzDecodeBody: never a panic, never more than allowed, and the same answer from a used decoder.
func FuzzDecodeBody(f *testing.F) {
	for _, s := range []string{"", "x", strings.Repeat("long ", 1000)} {
		f.Add([]byte(gzipped(f, s, s)), true, uint16(100))
		f.Add([]byte(zstandard(f, s, s)), false, uint16(10_000))
	}
	f.Fuzz(func(t *testing.T, body []byte, gz bool, most uint16) {
		encoding := "zstd"
		if gz {
			encoding = "gzip"
		}
		out, err := DecodeBody(encoding, body, int64(most))
		again, errAgain := DecodeBody(encoding, body, int64(most))
		if !bytes.Equal(out, again) || (err == nil) != (errAgain == nil) {
			t.Fatalf("%q, %v, and then %q, %v", out, err, again, errAgain)
		}
		if len(out) > int(most) || err != nil && (out != nil || err.Status != 400 && err.Status != 413) {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
	})
}
