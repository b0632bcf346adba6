package epp

import (
	"bytes"
	"strings"
	"testing"

	procv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// FuzzStream has a gateway say things in any order, in any mode. Whatever it says, nothing is left behind; and where it is a
// request as a gateway sends it, each phase is answered once and the body comes back as it was.
func FuzzStream(f *testing.F) {
	for _, s := range []string{"dhbbe", "dhe", "dH", "dhbt", "dht", "dhbee", "bhe", "bhbt", "Shbbe", "nh", "dhbeRrrx", "dhbtRrT", "bheRx", "xhhh", "nhh", "nth", "dbbbb", "dRrT", "dhz", "dhbeX"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, said string, size int) {
		p, _ := pool(t, "10.0.0.1:1", "10.0.0.2:1")
		s := server(p)
		st := &stream{server: s, traced: t.Context()}
		var out []*extprocv3.ProcessingResponse
		var sent []byte
		piece := bytes.Repeat([]byte("{x}"), max(0, min(size, 100_000)))
		for i, word := range said[:min(len(said), 40)] {
			m := spoken(word, piece)
			if i == 0 {
				m = mode(modes[word], &extprocv3.ProcessingRequest{})
			}
			sent = append(sent, m.GetRequestBody().GetBody()...)
			out = append(out, st.take(m)...)
			st.sent()
		}
		st.end()
		if load(p) != 0 || s.held.Load() != 0 {
			t.Errorf("%q: %d booked, %d bytes held", said, load(p), s.held.Load())
		}
		heads, trailers, ends := strings.IndexAny(said, "hH") == 1, strings.Count(said, "t"), strings.Count(said, "e")
		legal := heads && strings.HasPrefix(said, "d") && strings.Count(said, "h") == 1 && strings.Trim(said[1:], "hbet") == "" && trailers+ends == 1 &&
			strings.LastIndexAny(said, "te") == len(said)-1 && len(said) <= 40 && len(sent) <= 1<<20
		if !legal {
			return
		}
		body, over := returned(out)
		if !bytes.Equal(body, sent) || over != ends || out[0].GetRequestHeaders() == nil || (out[len(out)-1].GetRequestTrailers() != nil) != (trailers == 1) {
			t.Errorf("%q, %d bytes:\n%s", said, len(sent), script(out))
		}
	})
}

// modes by the first letter; another is that of no body.
var modes = map[rune]procv3.ProcessingMode_BodySendMode{
	'd': procv3.ProcessingMode_FULL_DUPLEX_STREAMED, 'b': procv3.ProcessingMode_BUFFERED, 'S': procv3.ProcessingMode_STREAMED,
	'n': procv3.ProcessingMode_NONE, 'x': 99,
}

// spoken is what a letter stands for: a request's phases in small ones, and R, r, T, X of an answer.
func spoken(word rune, piece []byte) *extprocv3.ProcessingRequest {
	switch word {
	case 'h':
		return reqHeaders(false, nil)
	case 'H':
		return reqHeaders(true, nil)
	case 'b':
		return reqBody(piece, false)
	case 'e':
		return reqBody(piece, true)
	case 't':
		return reqTrailers()
	case 'R':
		return servedBy("10.0.0.2:1", respHeaders(":status=200"))
	case 'r':
		return respBody(piece, false)
	case 'x':
		return respBody(piece, true)
	case 'T':
		return respTrailers()
	}
	return &extprocv3.ProcessingRequest{}
}
