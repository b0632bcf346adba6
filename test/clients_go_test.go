package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/spokegate/spokegate/usage"
)

// heardBy notes every answer that a client gets, those to its own retries too.
type heardBy struct {
	mu      sync.Mutex
	answers []*http.Response
	dials   atomic.Int64
}

func (h *heardBy) note(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if resp != nil {
		h.answers = append(h.answers, resp)
	}
	return resp, err
}

func (h *heardBy) last() *http.Response {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers[len(h.answers)-1]
}

func (h *heardBy) id() string { return h.last().Header.Get("X-Request-Id") }

func (h *heardBy) statuses() (all []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.answers {
		all = append(all, r.StatusCode)
	}
	return all
}

// goClient is the official Go client on a transport that counts its connections.
func (s clientSite) goClient(t *testing.T, key string, h *heardBy, more ...option.RequestOption) openai.Client {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}, ForceAttemptHTTP2: s.http2, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	if s.roots != "" {
		pem, err := os.ReadFile(s.roots)
		if err != nil {
			t.Fatal(err)
		}
		tr.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		tr.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(s.url + "/v1"), option.WithAPIKey(s.key(key)), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: tr}), option.WithMiddleware(h.note)}, more...)...)
}

// TestClientGo has what TestGoSDK has not: tools, structured output, base64, retries, connections in life, TLS.
func TestClientGo(t *testing.T) {
	t.Parallel()
	eachClientSite(t, func(t *testing.T, s clientSite) {
		t.Run("tools", func(t *testing.T) { goTools(t, s) })
		t.Run("structured", func(t *testing.T) { goStructured(t, s) })
		t.Run("base64", func(t *testing.T) { goBase64(t, s) })
		t.Run("rate limit", func(t *testing.T) { goRateLimit(t, s) })
		t.Run("engine fails", func(t *testing.T) { goEngineFails(t, s) })
		t.Run("too large", func(t *testing.T) { goTooLarge(t, s) })
		t.Run("long connection", func(t *testing.T) { goLongConnection(t, s) })
	})
}

// goWants compares what the client was told of its last request with the journal.
func goWants(t *testing.T, s clientSite, h *heardBy, u openai.CompletionUsage) {
	t.Helper()
	c := clientSaid{ID: h.id(), Outcome: usage.OutcomeComplete, Prompt: &u.PromptTokens, Completion: &u.CompletionTokens}
	if u.PromptTokensDetails.JSON.CachedTokens.Valid() {
		c.Cached = &u.PromptTokensDetails.CachedTokens
	}
	c.compare(t, s.ledger)
}

var goSchema = map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}, "additionalProperties": false}

func goTools(t *testing.T, s clientSite) {
	var h heardBy
	client := s.goClient(t, "main", &h)
	params := chatParams("sim-small", 100)
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "weather", Parameters: goSchema})}
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	got, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	goWants(t, s, &h, got.Usage)
	calls := got.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "weather" || !strings.Contains(calls[0].Function.Arguments, `"city"`) {
		t.Fatalf("got %s", got.RawJSON())
	}
	params.Messages = append(params.Messages, got.Choices[0].Message.ToParam(), openai.ToolMessage("blue", calls[0].ID))
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
	end, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	goWants(t, s, &h, end.Usage)
	if end.Choices[0].Message.Content == "" || end.Usage.PromptTokens <= got.Usage.PromptTokens {
		t.Errorf("got %s", end.RawJSON())
	}
}

func goStructured(t *testing.T, s clientSite) {
	var h heardBy
	client := s.goClient(t, "main", &h)
	params := chatParams("sim-small", 100)
	params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "place", Strict: openai.Bool(true), Schema: goSchema}}
	got, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	goWants(t, s, &h, got.Usage)
	var place struct{ City string }
	if err := json.Unmarshal([]byte(got.Choices[0].Message.Content), &place); err != nil || place.City == "" {
		t.Errorf("%v: %s", err, got.RawJSON())
	}
	if proto := h.last().ProtoMajor; s.http2 != (proto == 2) {
		t.Errorf("it speaks HTTP/%d", proto)
	}
}

func goBase64(t *testing.T, s clientSite) {
	var h heardBy
	client := s.goClient(t, "main", &h)
	var raw struct {
		Data  []struct{ Embedding string }
		Usage struct {
			Prompt int64 `json:"prompt_tokens"`
		}
	}
	_, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "sim-small", EncodingFormat: openai.EmbeddingNewParamsEncodingFormatBase64,
		Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("one")}}, option.WithResponseBodyInto(&raw))
	if err != nil || len(raw.Data) != 1 {
		t.Fatalf("%v: %+v", err, raw)
	}
	if floats, err := base64.StdEncoding.DecodeString(raw.Data[0].Embedding); err != nil || len(floats) != 64*4 {
		t.Errorf("%v: %d bytes", err, len(floats))
	}
	none := int64(0)
	clientSaid{ID: h.id(), Outcome: usage.OutcomeComplete, Operation: "embeddings", Prompt: &raw.Usage.Prompt, Completion: &none}.compare(t, s.ledger)
}

// goRateLimit meets the limit; the client waits as long as it is told, to the millisecond, and then passes by itself.
func goRateLimit(t *testing.T, s clientSite) {
	for range 30 { // a slow machine lets the rate recover between two requests
		var h heardBy
		client := s.goClient(t, "rated-go", &h, option.WithMaxRetries(1))
		sent := time.Now()
		got, err := client.Chat.Completions.New(t.Context(), chatParams("sim-small", 1))
		if err != nil {
			t.Fatal(err)
		}
		if len(h.answers) == 1 {
			continue
		}
		ms, err := strconv.Atoi(h.answers[0].Header.Get("Retry-After-Ms"))
		if wait := time.Since(sent); err != nil || ms < 1 || ms > 10_000 || wait < time.Duration(ms)*time.Millisecond || h.answers[0].StatusCode != http.StatusTooManyRequests {
			t.Errorf("%v: retry-after-ms is %d, it waited %v", h.statuses(), ms, wait)
		}
		s.ledger.refused(h.answers[0].Header.Get("X-Request-Id"))
		goWants(t, s, &h, got.Usage)
		return
	}
	t.Error("the limit was never met")
}

// goEngineFails lets the engine refuse the whole first request, break off, and send an error in mid-stream.
func goEngineFails(t *testing.T, s clientSite) {
	u := attached(t, "ext_proc")
	s.cases += "go/"
	scriptEngine(u.engine, s.cases)
	engine := clientSite{up: u, url: "http://" + u.listen}
	var h heardBy
	playing := func(name string, more ...option.RequestOption) openai.Client {
		return engine.goClient(t, "main", &h, append(more, option.WithHeader(caseHeader, s.cases+name))...)
	}
	retrying := playing("first-503", option.WithMaxRetries(2))
	got, err := retrying.Chat.Completions.New(t.Context(), chatParams("cheap", 1))
	if err != nil || fmt.Sprint(h.statuses()) != "[503 200]" {
		t.Fatalf("%v: %v", err, h.statuses())
	}
	clientSaid{ID: h.answers[0].Header.Get("X-Request-Id"), Outcome: usage.OutcomeUpstreamError, Status: 503}.compare(t, u.ledger)
	goWants(t, engine, &h, got.Usage)
	final := playing("429", option.WithMaxRetries(2))
	if _, err = final.Chat.Completions.New(t.Context(), chatParams("cheap", 1)); err == nil || len(h.answers) != 3 {
		t.Errorf("x-should-retry: false was not obeyed: %v %v", err, h.statuses())
	}
	two := int64(2)
	for name, want := range map[string]struct{ code, outcome string }{
		"error-event": {"context_length_exceeded", usage.OutcomeUpstreamError},
		"dies":        {"upstream_cut", usage.OutcomeUpstreamCut},
		"done":        {"", usage.OutcomeComplete},
	} {
		client, text := playing(name), ""
		stream := client.Chat.Completions.NewStreaming(t.Context(), chatParams("cheap", 1))
		for stream.Next() {
			for _, c := range stream.Current().Choices {
				text += c.Delta.Content
			}
		}
		err := stream.Err()
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		if text != "ab" || (err != nil) != (want.code != "") || err != nil && !strings.Contains(err.Error(), want.code) {
			t.Errorf("%s: %q, then %v", name, text, err)
		}
		clientSaid{ID: h.id(), Outcome: want.outcome, Stream: true, Completion: &two}.compare(t, u.ledger)
	}
}

// goTooLarge is told why, although it is still sending, and the next request passes.
func goTooLarge(t *testing.T, s clientSite) {
	var h heardBy
	client := s.goClient(t, "main", &h)
	params := chatParams("sim-small", 1)
	params.Messages = append(params.Messages, openai.UserMessage(string(bytes.Repeat([]byte("x"), clientsLimit))))
	_, err := client.Chat.Completions.New(t.Context(), params)
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusRequestEntityTooLarge || e.Code != "body_too_large" {
		t.Errorf("want 413, got %v", err)
	}
	got, err := client.Chat.Completions.New(t.Context(), chatParams("sim-small", 1))
	if err != nil {
		t.Fatal(err)
	}
	goWants(t, s, &h, got.Usage)
}

// goLongConnection sends hundreds of requests and streams over one connection, which is idle for a while in between.
func goLongConnection(t *testing.T, s clientSite) {
	var h heardBy
	client := s.goClient(t, "main", &h)
	for i := range 300 {
		if i == 150 {
			time.Sleep(2 * time.Second) // is idle
		}
		got, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "sim-small", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(fmt.Sprint(i))}})
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if i%50 == 0 {
			clientSaid{ID: h.id(), Outcome: usage.OutcomeComplete, Prompt: &got.Usage.PromptTokens}.compare(t, s.ledger)
		}
	}
	if n := h.dials.Load(); n != 1 {
		t.Errorf("it took %d connections", n)
	}
}
