package worker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// clientPair is a connection that can gather, and its other end.
func clientPair(t *testing.T) (c *clientConn, other net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if other, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	conn, err := clients{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*clientConn), other
}

// TestGathersUntilReleased: in order, also more than was foreseen, and nothing before.
func TestGathersUntilReleased(t *testing.T) {
	c, other := clientPair(t)
	_, _ = io.WriteString(c, "before ")
	c.gather(3)
	large := strings.Repeat("x", 1<<17)
	for _, p := range []string{"one ", large, " two"} {
		if n, err := io.WriteString(c, p); n != len(p) || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
	if held := string(*c.room); held != "one "+large+" two" {
		t.Errorf("%d bytes are held", len(held))
	}
	go func() {
		if err := c.release(); err != nil || c.room != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(c, " after")
		c.Close()
	}()
	if got, err := io.ReadAll(other); err != nil || string(got) != "before one "+large+" two after" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestNothingFollowsWhatDidNotLeave, for it would be taken for what is missing.
func TestNothingFollowsWhatDidNotLeave(t *testing.T) {
	c, _ := clientPair(t)
	c.gather(9)
	_, _ = io.WriteString(c, "lost")
	c.Close()
	err := c.release()
	if !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if n, again := io.WriteString(c, "more"); n != 0 || again != err {
		t.Errorf("%d %v", n, again)
	}
	c.gather(9)
	_, _ = io.WriteString(c, "more")
	if again := c.release(); again != err {
		t.Error(again)
	}
}

// TestAnswersOfAllSizes arrive as they are, whichever way they are written.
func TestAnswersOfAllSizes(t *testing.T) {
	of := func(n int) string { return `{"choices":[],"filler":"` + strings.Repeat("x", n) + `"}` }
	s := newShim(t, server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := 10 * strings.Count(string(body), "y")
		if strings.Contains(string(body), `"stream":true`) {
			sse(w, strings.Repeat("data: "+of(20)+"\n\n", n/10)+"data: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, of(n))
	}), nil)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: &protocols}
	defer h2.CloseIdleConnections()
	for proto, via := range map[string]http.RoundTripper{"h1": s.client.Transport, "h2": h2} {
		client := &http.Client{Transport: via}
		for _, n := range []int{0, 10, 150, 300, 1000, 8000} {
			for _, stream := range []string{"", `,"stream":true`} {
				id := fmt.Sprint(proto, n, stream)
				q := s.request(t, t.Context(), id, "/v1/chat/completions", `{"model":"m","messages":[],"user":"`+strings.Repeat("y", n)+`"`+stream+`}`)
				resp, err := client.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := of(10 * n)
				if stream != "" {
					want = strings.Repeat("data: "+of(20)+"\n\n", n) + "data: [DONE]\n\n"
				}
				r := s.journal.one(t, id)
				if plain := withoutNotes(string(got)); err != nil || plain != want || r.Outcome != complete || r.GetResponseBytes() != int64(len(got)) {
					t.Errorf("%s, %d%s: %d bytes, want %d, %v; %v", proto, n, stream, len(plain), len(want), err, r)
				}
			}
		}
	}
}
