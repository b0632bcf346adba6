package epp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestBodiesArriveWhole in every size that something is cut at, with and without a length told, in each mode of the filter.
func TestBodiesArriveWhole(t *testing.T) {
	const most = 4 << 20
	all := pattern(most)
	for listener, sizes := range map[string][]int{
		"http":     {0, 1, 61_999, 62_000, 62_001, 131_072, 131_073, 330_000, most},
		"h2c":      {0, 1, 62_000, 131_073, 330_000, most},
		"buffered": {0, 1, 330_000}, // Envoy holds 1 MiB at most
		"streamed": {0, 1, 330_000, most},
	} {
		for _, size := range sizes {
			for _, chunked := range []bool{false, true} {
				for _, http2 := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%d/chunked=%t/http2=%t", listener, size, chunked, http2), func(t *testing.T) {
						r := call{listener: listener, body: all[:size], chunked: chunked, http2: http2, subset: list(lab.one.addr, lab.six.addr)}.do(t)
						r.followed(t)
						if r.got.Length != size || r.got.Sum != sum(all[:size]) {
							t.Errorf("the worker received %d of %d bytes", r.got.Length, size)
						}
					})
				}
			}
		}
	}
}

// TestTrailers of requests and of answers, which end a body in another way.
func TestTrailers(t *testing.T) {
	for _, listener := range []string{"http", "h2c", "streamed"} {
		for _, http2 := range []bool{false, true} {
			for _, size := range []int{0, 10, 62_000, 330_000} {
				t.Run(fmt.Sprintf("%s/%d/http2=%t", listener, size, http2), func(t *testing.T) {
					body := pattern(size)
					r := call{listener: listener, http2: http2, path: pathChat, body: body, subset: list(lab.three.addr), trailer: http.Header{"X-Checksum": {"abc"}}}.do(t)
					r.followed(t)
					if r.got.Length != size || r.got.Sum != sum(body) || r.got.Trailer.Get("X-Checksum") != "abc" {
						t.Errorf("the worker received %d of %d bytes, trailers %v", r.got.Length, size, r.got.Trailer)
					}
					if r.trailer.Get("X-After") != "said" {
						t.Errorf("the answer's trailers are %v", r.trailer)
					}
				})
			}
		}
	}
}

// TestUnaryGRPC: a call of headers, one message and, from the server, trailers.
func TestUnaryGRPC(t *testing.T) {
	message := append([]byte{0, 0, 0, 0, 5}, "hello"...)
	r := call{listener: "h2c", http2: true, path: pathStrict, body: message, subset: list(lab.two.addr),
		header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}}.do(t)
	r.followed(t)
	if !bytes.Equal(r.body, message) || r.trailer.Get("Grpc-Status") != "0" || r.trailer.Get("Grpc-Message") != "trailers" {
		t.Errorf("answer %q, trailers %v", r.body, r.trailer)
	}
}

func TestLargeAnswersArriveWhole(t *testing.T) {
	const size = 10 << 20
	want := pattern(64 << 10)
	for _, listener := range []string{"http", "h2c", "streamed"} {
		t.Run(listener, func(t *testing.T) {
			r := call{listener: listener, path: fmt.Sprintf("%s?size=%d", pathLarge, size), body: prompt(1)}.do(t)
			if r.status != http.StatusOK || len(r.body) != size {
				t.Fatalf("%d bytes of %d: %d", len(r.body), size, r.status)
			}
			for i := 0; i < size; i += len(want) {
				if !bytes.Equal(r.body[i:i+len(want)], want) {
					t.Fatalf("it is another from byte %d on", i)
				}
			}
		})
	}
}

// TestAnswersAreStreamed: what a worker has said is there before the answer is whole.
func TestAnswersAreStreamed(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		name := fmt.Sprint(lab.newNumber())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp := call{http2: http2, path: pathHeld + "?name=" + name, body: prompt(1)}.begin(ctx, t)
		defer resp.Body.Close()
		first := make([]byte, len("first"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
			t.Fatalf("%q, %v", first, err)
		}
		close(lab.hold(name))
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// TestRepeatedHeadersStayApart, both ways: the picker gives none of them back.
func TestRepeatedHeadersStayApart(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		r := call{http2: http2, subset: list(lab.one.addr), body: prompt(1), header: http.Header{"X-Twice": {"1", "2"}, "Cookie": {"a=1", "b=2"}}}.do(t)
		r.followed(t)
		if got := strings.Join(r.got.Header["X-Twice"], ","); got != "1,2" {
			t.Errorf("x-twice arrived as %q", got)
		}
		if got := strings.Join(r.got.Header["Cookie"], "; "); got != "a=1; b=2" { // HTTP/2 cuts cookies as it likes
			t.Errorf("cookie arrived as %q", got)
		}
		if got := r.header["Set-Cookie"]; len(got) != 2 || got[0] != "a=1" || got[1] != "b=2" {
			t.Errorf("set-cookie arrived as %q", got)
		}
	}
}
