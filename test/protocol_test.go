package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spokegate/spokegate/usage"
)

// TestTrailers sends trailers after the body over HTTP/2: the request must pass once, and its body whole. Before a picker in
// the chain it is refused instead, because Envoy would send the body twice.
func TestTrailers(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := tapped(t, picker)
		body := string(requestCase{SentSize: 100_000}.body())
		c := post(u.key("main"), "/v1/chat/completions", body, field{caseHeader, casePrefix + "trailers"})
		c.chunked = true
		c.trailers = http.Header{"X-Checksum": {"1"}, "X-Spokegate-Context": {"forged"}}
		r := u.doOver(t, http2c, c)
		if picker == "ext_proc" {
			wantRefusal(t, r, "", http.StatusBadRequest, "invalid_body")
			if got := u.tap.got(casePrefix + "trailers"); len(got) > 0 {
				t.Errorf("the worker received it: %v", got[0].header)
			}
			if rec := u.ledger.usage(t, r.admission()); rec.GetOutcome() != usage.OutcomeNotServed {
				t.Errorf("the usage record is %v", rec)
			}
			return
		}
		if r.status != http.StatusOK {
			t.Fatalf("want 200, got %v", r)
		}
		got := once(t, "worker", u.tap.got(casePrefix+"trailers"))
		if err := got.judge(r.admission()); err != nil {
			t.Error(err)
		}
		if string(got.body) != body {
			t.Errorf("sent %d bytes, the worker got %d", len(body), len(got.body))
		}
		if rec := u.ledger.usage(t, r.admission()); rec.GetOutcome() != usage.OutcomeComplete {
			t.Errorf("the usage record is %v", rec)
		}
	})
}

// TestContinue waits for "100 Continue" before it sends a body, as curl does with large ones.
func TestContinue(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := tapped(t, picker)
		for _, size := range []int{1000, 300_000} {
			body := requestCase{SentSize: size}.body()
			conn, err := dial(t.Context(), u.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\nuser-agent: case/continue-%d\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n",
				u.key("main"), size, size)
			r := bufio.NewReader(conn)
			if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
				t.Fatalf("want 100 Continue, got %q, %v", line, err)
			}
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(body); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := whole(resp); err != nil || got.status != http.StatusOK {
				t.Fatalf("%v, %v", err, got)
			}
			once(t, "worker", u.tap.got(fmt.Sprintf("case/continue-%d", size)))
		}
	})
}

// TestContinueWithoutKey must not be told to go on sending a large body.
func TestContinueWithoutKey(t *testing.T) {
	t.Parallel()
	u := tapped(t, "admission")
	conn, err := dial(t.Context(), u.listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 20000000\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	for err == nil && resp.StatusCode == http.StatusContinue { // Envoy says it by itself; the refusal must follow without the body
		resp, err = http.ReadResponse(r, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := whole(resp)
	if err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, got, "", http.StatusUnauthorized, "invalid_api_key")
}

// TestManyStreams runs many requests at once over one HTTP/2 connection; one of them is cut, and the others do not notice.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		tr := priorKnowledge()
		defer tr.CloseIdleConnections()
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				body := fmt.Sprintf(`{"model":"sim-small","max_tokens":20,"stream":true,"messages":[{"role":"user","content":"stream %d"}]}`, i)
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+u.listen+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+u.key("main"))
				req.Header.Set("Content-Type", "application/json")
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				if i%10 == 3 { // leaves
					resp.Body.Close()
					return
				}
				if r, err := whole(resp); err != nil || r.status != http.StatusOK || !strings.HasSuffix(string(r.body), "data: [DONE]\n\n") {
					t.Errorf("stream %d: %v %v", i, err, r)
				}
			})
		}
		all.Wait()
	})
}

// TestEngineStopsWhenClientLeaves looks at the engine itself, also before the first byte. It would go on for minutes.
func TestEngineStopsWhenClientLeaves(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := attached(t, picker)
		for name, chunks := range map[string][]string{"after the first byte": {"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"}, "before the first byte": {""}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				label := casePrefix + "leaves-" + strings.ReplaceAll(name, " ", "-")
				u.engine.plays(label, script{chunks: chunks, end: "client", linger: 2 * factPatience})
				conn, err := dial(t.Context(), u.listen)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				c := post(u.key("main"), "/v1/chat/completions", `{"model":"cheap","stream":true,"messages":[]}`, field{caseHeader, label})
				if _, err := conn.Write(c.http1(u.listen)); err != nil {
					t.Fatal(err)
				}
				eventually(t, factPatience, func() error {
					if len(u.engine.got(label)) == 0 {
						return fmt.Errorf("the engine has not been asked")
					}
					return nil
				})
				conn.Close()
				left := time.Now()
				select {
				case <-u.engine.left(label):
					t.Logf("the engine stopped %v after the client left", time.Since(left))
				case <-time.After(factPatience):
					t.Fatal("the engine goes on after the client left")
				}
				rec := u.ledger.usage(t, u.engine.got(label)[0].header.Get("X-Request-Id"))
				if rec.GetOutcome() != usage.OutcomeClientCut {
					t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
				}
			})
		}
	})
}

// TestBodyLimit lowers the cap: to the byte, with and without a length.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "body-limit", upOptions{policy: casesPolicy("[{name: pool}]", "pool"), engine: startEngine("cheap", "dear"), more: []string{"-body-limit", "1048576"}})
	for _, p := range protocols {
		for _, chunked := range []bool{false, true} {
			c := post(u.key("main"), "/v1/chat/completions", string(requestCase{SentSize: 1 << 20}.body()), field{caseHeader, casePrefix + "limit"})
			c.chunked = chunked
			if r := u.doOver(t, p, c); r.status != http.StatusOK {
				t.Errorf("%s, chunked %t: at the cap: %v", p.name, chunked, r)
			}
			c.body = append(c.body, ' ')
			wantRefusal(t, u.doOver(t, p, c), "", http.StatusRequestEntityTooLarge, "body_too_large")
		}
	}
}
