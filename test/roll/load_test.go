//go:build kube

package roll

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// balancer passes connections on to the doors that were ready a moment ago, as a Service does.
type balancer struct {
	net.Listener
	s     *spoke
	ready atomic.Pointer[[]string]
	turn  atomic.Uint64
	stop  chan struct{}
	all   sync.WaitGroup
}

// lag is how late the balancer acts on what it sees: less than -drain-delay.
const lag = 500 * time.Millisecond

func (s *spoke) balance() *balancer {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	b := &balancer{Listener: lis, s: s, stop: make(chan struct{})}
	b.ready.Store(&[]string{})
	b.all.Go(b.watch)
	b.all.Go(b.accept)
	s.t.Cleanup(func() { close(b.stop); lis.Close(); b.all.Wait() })
	return b
}

func (b *balancer) watch() {
	for {
		var now []string
		for _, d := range b.s.living() {
			if good("http://"+d.ip+":"+opsPort+"/readyz/any") == nil {
				now = append(now, d.ip+":"+clientPort)
			}
		}
		select {
		case <-time.After(lag):
		case <-b.stop:
			return
		}
		b.ready.Store(&now)
	}
}

func (b *balancer) accept() {
	for {
		c, err := b.Accept()
		if err != nil {
			return
		}
		go b.pass(c)
	}
}

func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	ready := *b.ready.Load()
	if len(ready) == 0 {
		return
	}
	up, err := net.Dial("tcp", ready[b.turn.Add(1)%uint64(len(ready))])
	if err != nil {
		return
	}
	defer up.Close()
	go func() { _, _ = io.Copy(up, c); _ = up.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(c, up)
}

// load is clients that ask all the time.
type load struct {
	url, key string
	stop     chan struct{}
	all      sync.WaitGroup

	mu      sync.Mutex
	good    int
	through map[string]int
	bad     []string
}

func (s *spoke) load(address string) *load {
	l := &load{url: "http://" + address + "/v1/chat/completions", key: s.key, stop: make(chan struct{}), through: map[string]int{}}
	for i := range 6 {
		var protocols http.Protocols
		protocols.SetHTTP1(i%2 == 0)
		protocols.SetUnencryptedHTTP2(i%2 == 1)
		client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
		tokens := 5
		if i >= 4 {
			tokens = 120 // a stream of some seconds
		}
		l.all.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-l.stop:
					return
				default:
					l.note(l.ask(client, tokens))
				}
			}
		})
	}
	return l
}

func (l *load) ask(client *http.Client, tokens int) (proto string, err error) {
	q, _ := http.NewRequest("POST", l.url, strings.NewReader(fmt.Sprintf(
		`{"model":"m","stream":true,"max_tokens":%d,"min_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens, tokens)))
	q.GetBody = nil // what fails is not asked again behind our back
	q.Header.Set("Authorization", "Bearer "+l.key)
	q.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", fmt.Errorf("a stream broke after %d bytes: %w", len(b), err)
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s: %s", resp.Status, b)
	case !strings.HasSuffix(string(b), "data: [DONE]\n\n"):
		return "", fmt.Errorf("not whole: %s", b[max(0, len(b)-200):])
	}
	return resp.Proto, nil
}

func (l *load) note(proto string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.bad = append(l.bad, time.Now().Format("15:04:05.000 ")+err.Error())
		return
	}
	l.good++
	l.through[proto]++
}

// failed takes what has failed until now.
func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	bad := l.bad
	l.bad = nil
	return bad
}

func (l *load) end() { close(l.stop); l.all.Wait() }
