package openai

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is how far back zstd may refer, and so what a decoder may hold: RFC 9659 sets it for HTTP.
const maxWindow = 8 << 20

// CheckEncoding refuses (415) a content-encoding that DecodeBody does not decode, before there is a body. Several at once are
// refused too: each would multiply what a small body unfolds to.
func CheckEncoding(encoding string) *Error {
	switch codingOf(encoding) {
	case "", "identity", "gzip", "x-gzip", "zstd":
		return nil
	}
	return UnsupportedMediaType("content-encoding " + encoding)
}

func codingOf(encoding string) string { return strings.ToLower(strings.Trim(encoding, " \t")) }

// DecodeBody takes the content-encoding off a request body. The door judges what it returns, and a shim hands the same to the
// engine: nobody else decodes, so nobody reads it differently. A body that has none is returned as it is.
//
// Members of gzip and frames of zstd that follow each other are one body, as their standards say. Refused are: another
// encoding, or several (415); what is cut short, followed by anything else, or fails its checksum (400); more than most bytes
// when decoded (413). Memory grows with what was decoded, little with what a header promises, and never far beyond most.
func DecodeBody(encoding string, body []byte, most int64) ([]byte, *Error) {
	if err := CheckEncoding(encoding); err != nil {
		return nil, err
	}
	coding := codingOf(encoding)
	switch coding {
	case "", "identity":
		if int64(len(body)) > most {
			return nil, BodyTooLarge(most)
		}
		return body, nil
	case "x-gzip":
		coding = "gzip"
	}
	out, whole, err := decode(coding, body, most)
	switch {
	case err != nil:
		return nil, InvalidBody("", fmt.Sprintf("Invalid request body: it is not whole and valid %s.", coding))
	case !whole:
		return nil, BodyTooLarge(most)
	}
	return out, nil
}

// decode returns at most most bytes; whole is false when there are more.
func decode(coding string, body []byte, most int64) (out []byte, whole bool, err error) {
	if len(body) == 0 {
		return nil, false, io.ErrUnexpectedEOF
	}
	pool := &gzips
	if coding == "zstd" {
		pool = &zstds
	}
	d := pool.Get().(*decoder)
	defer pool.Put(d)
	d.body.Reset(body)
	defer d.body.Reset(nil)
	if err := d.Reset(&d.body); err != nil {
		return nil, false, err
	}
	return readAtMost(d, make([]byte, 0, min(promised(coding, body), 32*int64(len(body)), most)+1), most)
}

// promised returns how long the body says to be when decoded: exactly, mostly. It is not to be believed.
func promised(coding string, body []byte) int64 {
	if coding == "gzip" {
		if len(body) < 4 {
			return 0
		}
		return int64(binary.LittleEndian.Uint32(body[len(body)-4:]))
	}
	var h zstd.Header
	if err := h.Decode(body); err != nil || !h.HasFCS || h.FrameContentSize > maxCount {
		return 4 * int64(len(body))
	}
	return int64(h.FrameContentSize)
}

// readAtMost appends to out, and doubles it as it fills up.
func readAtMost(r io.Reader, out []byte, most int64) ([]byte, bool, error) {
	for {
		if len(out) == cap(out) {
			larger := make([]byte, len(out), min(2*int64(cap(out)), most)+1)
			copy(larger, out)
			out = larger
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > most:
			return nil, false, nil
		case err == io.EOF:
			return out, true, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// decoder is a reader that starts anew for each body.
type decoder struct {
	body bytes.Reader
	resetter
}

type resetter interface {
	io.Reader
	Reset(io.Reader) error
}

// Decoders have tables and windows that are worth keeping.
var (
	gzips = sync.Pool{New: func() any { return &decoder{resetter: new(gzip.Reader)} }}
	zstds = sync.Pool{New: func() any {
		// No goroutines, so that one that the pool forgets leaves nothing behind.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeBuffersBelow(0))
		if err != nil {
			panic(err) // the options are constants
		}
		return &decoder{resetter: z}
	}}
)
