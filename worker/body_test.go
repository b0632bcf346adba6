package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
)

// Whatever the edits and however it is read: the bytes are those of the oracle, which copies.
func TestBodyIsReadAsEdited(t *testing.T) {
	for seed := range int64(500) {
		rnd := rand.New(rand.NewSource(seed))
		in := []byte(strings.Repeat("0123456789", 1+rnd.Intn(9)))
		var edits []edit
		var want []byte
		at := 0
		for range rnd.Intn(4) {
			start := at + rnd.Intn(len(in)-at+1)
			end := start + rnd.Intn(len(in)-start+1)
			with := strings.Repeat("x", rnd.Intn(3))
			edits = append(edits, edit{openai.Span{Start: start, End: end}, []byte(with)})
			want = append(append(want, in[at:start]...), with...)
			at = end
		}
		want = append(want, in[at:]...)
		rnd.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
		if slices.ContainsFunc(edits, func(e edit) bool { return e.at.Start == e.at.End }) {
			continue // two at one place have no order
		}
		b := newBody(&in).edited(edits...)
		for _, open := range []func() io.ReadCloser{b.open, func() io.ReadCloser { return b.openLarge() }} {
			if err := iotest.TestReader(open(), want); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		r, part := b.openLarge(), make([]byte, rnd.Intn(len(want)+1))
		_, _ = io.ReadFull(r, part)
		rest := bytes.NewBuffer(part)
		if left := r.left(); left != b.size-int64(len(part)) {
			t.Fatalf("seed %d: %d are left after %d of %d", seed, left, len(part), b.size)
		}
		if _, err := r.WriteTo(rest); err != nil || rest.String() != string(want) || b.size != int64(len(want)) {
			t.Fatalf("seed %d: %q, expected %q, %v", seed, rest, want, err)
		}
	}
}

// latch holds a writer.
type latch struct{ entered, open chan struct{} }

func (g latch) Write(p []byte) (int, error) {
	close(g.entered)
	<-g.open
	return len(p), nil
}

// The room is given back when the last that could read it is done, also when a reader is closed while it is being read.
func TestRoomIsGivenBackLast(t *testing.T) {
	sent := wire.Buffers.Get(1 << 14)
	b := newBody(sent)
	r, second := b.edited().openLarge(), b.edited().openLarge()
	b.done()
	_ = second.Close()
	_ = second.Close() // twice is once
	g := latch{make(chan struct{}), make(chan struct{})}
	written := make(chan error, 1)
	go func() { _, err := r.WriteTo(g); written <- err }()
	<-g.entered
	_ = r.Close()
	if b.users != 1 || b.room != sent {
		t.Fatalf("%d users while it is read", b.users)
	}
	close(g.open)
	if err := <-written; err != nil || b.users != 0 || b.room != nil {
		t.Fatalf("%d users at the end: %v", b.users, err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errBodyClosed) {
		t.Errorf("read after the end: %v", err)
	}
	if _, err := r.WriteTo(io.Discard); !errors.Is(err, errBodyClosed) {
		t.Errorf("written after the end: %v", err)
	}
}

// A body of any size arrives as it is, over TCP and over a Unix socket.
func TestBodiesOfAllSizes(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		_, _ = w.Write(all)
	})
	for _, network := range []string{"tcp", "unix"} {
		server := httptest.NewUnstartedServer(echo)
		if network == "unix" {
			server.Listener.Close()
			l, err := net.Listen("unix", t.TempDir()+"/s")
			if err != nil {
				t.Fatal(err)
			}
			server.Listener = l
		}
		server.Start()
		at := server.Listener.Addr()
		transport := newTransport(nil)
		transport.DialContext = dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, at.Network(), at.String())
		}).direct
		var all sync.WaitGroup
		for i, n := range []int{1, 1 << 10, 8 << 10, 8<<10 + 1, 330_000, 3 << 20} {
			all.Go(func() {
				for round := range 3 {
					sent := wire.Buffers.Get(n)
					for j := range *sent {
						(*sent)[j] = byte('a' + (i+j+round)%26)
					}
					want := bytes.Clone(*sent)
					b := newBody(sent).edited()
					q, _ := http.NewRequest("POST", "http://x/", b.open())
					q.ContentLength, q.GetBody = b.size, func() (io.ReadCloser, error) { return b.open(), nil }
					resp, err := transport.RoundTrip(q)
					b.of.done()
					if err != nil {
						t.Errorf("%s, %d bytes, round %d: %v", network, n, round, err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s, %d bytes, round %d: got %d bytes, %v", network, n, round, len(got), err)
					}
				}
			})
		}
		all.Wait()
		transport.CloseIdleConnections()
		server.Close()
	}
}

// countedConn counts its writes.
type countedConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestSmallRequestIsOneWrite: its header, the client's bytes and what is put between them leave together, again and again.
func TestSmallRequestIsOneWrite(t *testing.T) {
	got := make(chan string, 1)
	at := server(t, func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body)
		got <- string(all)
	})
	writes := new(atomic.Int32)
	transport := newTransport(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{conn, writes}, err
	})
	defer transport.CloseIdleConnections()
	sent := []byte(strings.Repeat("0123456789", 700))
	b := newBody(&sent).edited(edit{openai.Span{Start: 9, End: 10}, []byte("nine")}, edit{openai.Span{Start: 7000, End: 7000}, []byte("end")})
	want := "012345678nine" + string(sent[10:]) + "end"
	for range 2 {
		writes.Store(0)
		q, _ := http.NewRequest("POST", at, b.open())
		q.ContentLength = b.size
		resp, err := transport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if body, n := <-got, writes.Load(); body != want || n != 1 {
			t.Errorf("%d writes of %q", n, body)
		}
	}
}
