package test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/spokegate/spokegate/usage"
)

// TestGoSDK uses the official Go client as its users do.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		client := u.sdk("main")
		t.Run("chat", func(t *testing.T) { sdkChat(t, client) })
		t.Run("stream", func(t *testing.T) { sdkStream(t, client) })
		t.Run("completions", func(t *testing.T) { sdkCompletions(t, client) })
		t.Run("embeddings", func(t *testing.T) { sdkEmbeddings(t, client) })
		t.Run("responses", func(t *testing.T) { sdkResponses(t, client) })
		t.Run("models", func(t *testing.T) { sdkModels(t, client) })
		t.Run("left midway", func(t *testing.T) { sdkLeaves(t, u, client) })
		t.Run("errors", func(t *testing.T) { sdkErrors(t, u) })
	})
}

func (u *up) sdk(key string, more ...option.RequestOption) openai.Client {
	secret := key
	if u.policy.secrets[key] != "" {
		secret = u.key(key)
	}
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL("http://" + u.listen + "/v1"), option.WithAPIKey(secret), option.WithMaxRetries(0)}, more...)...)
}

func chatParams(model string, tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, MaxCompletionTokens: openai.Int(tokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("Hello")}}
}

func sdkChat(t *testing.T, client openai.Client) {
	got, err := client.Chat.Completions.New(t.Context(), chatParams("sim-large", 12))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Choices) != 1 || got.Choices[0].Message.Content == "" || got.Choices[0].FinishReason == "" ||
		got.Model != "sim-large" || got.Usage.CompletionTokens != 12 || got.Usage.PromptTokens == 0 {
		t.Errorf("got %s", got.RawJSON())
	}
}

func sdkStream(t *testing.T, client openai.Client) {
	params := chatParams("sim-small", 15)
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := client.Chat.Completions.NewStreaming(t.Context(), params)
	var all openai.ChatCompletionAccumulator
	text := 0
	for s.Next() {
		if !all.AddChunk(s.Current()) {
			t.Fatalf("the accumulator refuses %s", s.Current().RawJSON())
		}
		if c := s.Current().Choices; len(c) > 0 && c[0].Delta.Content != "" {
			text++
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if text < 2 || all.Usage.CompletionTokens != 15 || all.Choices[0].FinishReason == "" {
		t.Errorf("%d chunks with text, usage %+v, %+v", text, all.Usage, all.Choices)
	}
}

func sdkCompletions(t *testing.T, client openai.Client) {
	params := openai.CompletionNewParams{Model: "sim-small", MaxTokens: openai.Int(8), Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once")}}
	got, err := client.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Text == "" || got.Usage.CompletionTokens != 8 {
		t.Errorf("got %s", got.RawJSON())
	}
	s := client.Completions.NewStreaming(t.Context(), params)
	var text strings.Builder
	for s.Next() {
		for _, c := range s.Current().Choices {
			text.WriteString(c.Text)
		}
	}
	if s.Err() != nil || text.String() != got.Choices[0].Text {
		t.Errorf("%v; as a stream %q, whole %q", s.Err(), text.String(), got.Choices[0].Text)
	}
}

func sdkEmbeddings(t *testing.T, client openai.Client) {
	got, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "sim-small", Dimensions: openai.Int(16),
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || len(got.Data[1].Embedding) != 16 || got.Usage.PromptTokens == 0 {
		t.Errorf("got %s", got.RawJSON())
	}
}

func sdkResponses(t *testing.T, client openai.Client) {
	params := responses.ResponseNewParams{Model: "sim-small", MaxOutputTokens: openai.Int(16), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")}}
	got, err := client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if got.OutputText() == "" || got.Usage.OutputTokens != 16 {
		t.Errorf("got %s", got.RawJSON())
	}
	s := client.Responses.NewStreaming(t.Context(), params)
	text, completed := "", false
	for s.Next() {
		switch e := s.Current(); e.Type {
		case "response.output_text.delta":
			text += e.Delta
		case "response.completed", "response.incomplete":
			completed = e.Response.Usage.OutputTokens == 16
		}
	}
	if s.Err() != nil || text != got.OutputText() || !completed {
		t.Errorf("%v; as a stream %q (end seen: %t), whole %q", s.Err(), text, completed, got.OutputText())
	}
}

func sdkModels(t *testing.T, client openai.Client) {
	page, err := client.Models.List(t.Context())
	if err != nil || len(page.Data) != 2 {
		t.Errorf("%v: %+v", err, page)
	}
	if one, err := client.Models.Get(t.Context(), "sim-large"); err != nil || one.ID != "sim-large" {
		t.Errorf("%v: %+v", err, one)
	}
}

// sdkLeaves closes a stream midway: the request must be counted, and as cut.
func sdkLeaves(t *testing.T, u *up, client openai.Client) {
	var id string
	s := client.Chat.Completions.NewStreaming(t.Context(), chatParams("sim-small", longTokens), option.WithMiddleware(noteRequestID(&id)))
	for range 10 {
		if !s.Next() {
			t.Fatalf("the stream ended by itself: %v", s.Err())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rec := u.ledger.usage(t, id)
	if n := rec.GetCompletionTokens(); rec.GetOutcome() != usage.OutcomeClientCut || n < 5 || n >= longTokens {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
}

func sdkErrors(t *testing.T, u *up) {
	ask := func(client openai.Client, model string) error {
		_, err := client.Chat.Completions.New(t.Context(), chatParams(model, 1))
		return err
	}
	if err := ask(u.sdk("rated-go"), "sim-small"); err != nil {
		t.Fatalf("the one request that the limit allows: %v", err)
	}
	for _, c := range []struct {
		name, code string
		status     int
		err        error
	}{
		{"bad key", "invalid_api_key", 401, ask(u.sdk("sk-nonsense"), "sim-small")},
		{"revoked", "invalid_api_key", 401, ask(u.sdk("old"), "sim-small")},
		{"not allowed", "model_not_allowed", 403, ask(u.sdk("small-only"), "sim-large")},
		{"no such model", "model_not_found", 404, ask(u.sdk("main"), "gpt-17")},
		{"limit", "rate_limit_exceeded", 429, ask(u.sdk("rated-go"), "sim-small")},
	} {
		var e *openai.Error
		if !errors.As(c.err, &e) {
			t.Errorf("%s: want an API error, got %v", c.name, c.err)
			continue
		}
		if e.StatusCode != c.status || e.Code != c.code || e.Message == "" || e.Type == "" || e.Response.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: want %d %s, got %d %s", c.name, c.status, c.code, e.StatusCode, e.RawJSON())
		}
	}
}
