package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// The official SDK for Go parses what we say.
func TestOfficialSDK(t *testing.T) {
	_, url := start(t, fast())
	c := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(0))
	ctx := context.Background()
	ask := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}

	chat, err := c.Chat.Completions.New(ctx, ask)
	if err != nil || !strings.HasPrefix(chat.Choices[0].Message.Content, "(simulator)") || chat.ID == "" || chat.Created == 0 ||
		chat.Object != "chat.completion" || chat.Choices[0].FinishReason != "stop" || chat.Usage.TotalTokens != chat.Usage.PromptTokens+chat.Usage.CompletionTokens {
		t.Fatalf("%v %+v", err, chat)
	}
	ask.StreamOptions.IncludeUsage = param.NewOpt(true)
	stream, acc := c.Chat.Completions.NewStreaming(ctx, ask), openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("chunk does not fit: %s", stream.Current().RawJSON())
		}
	}
	if stream.Err() != nil || acc.Choices[0].Message.Content != chat.Choices[0].Message.Content || acc.Usage.CompletionTokens != chat.Usage.CompletionTokens {
		t.Fatalf("%v %+v", stream.Err(), acc)
	}
	embedding, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "m", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}})
	if err != nil || len(embedding.Data) != 2 || len(embedding.Data[1].Embedding) != defaultDimensions {
		t.Fatalf("%v %+v", err, embedding)
	}
	models, err := c.Models.List(ctx)
	if err != nil || len(models.Data) != 2 {
		t.Fatalf("%v %+v", err, models)
	}
	_, err = c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "none"})
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != 404 || refused.Code != "model_not_found" {
		t.Fatalf("%v", err)
	}
}

func TestOfficialSDKResponses(t *testing.T) {
	_, url := start(t, fast())
	c := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("x"), option.WithMaxRetries(0))
	ask := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("hello")}}
	whole, err := c.Responses.New(context.Background(), ask)
	if err != nil || whole.Status != "completed" || !strings.HasPrefix(whole.OutputText(), "(simulator)") || whole.Usage.OutputTokens == 0 {
		t.Fatalf("%v %+v", err, whole)
	}
	stream := c.Responses.NewStreaming(context.Background(), ask)
	text, kinds := "", []string{}
	for number := int64(0); stream.Next(); number++ {
		e := stream.Current()
		if e.SequenceNumber != number {
			t.Errorf("event %d has number %d", number, e.SequenceNumber)
		}
		if !slices.Contains(kinds, e.Type) {
			kinds = append(kinds, e.Type)
		}
		text += e.Delta
		if e.Type == "response.completed" && (e.Response.OutputText() != text || e.Response.Usage.OutputTokens != whole.Usage.OutputTokens) {
			t.Errorf("completed with %q after %q", e.Response.OutputText(), text)
		}
	}
	want := "response.created response.in_progress response.output_item.added response.content_part.added response.output_text.delta " +
		"response.output_text.done response.content_part.done response.output_item.done response.completed"
	if got := strings.Join(kinds, " "); stream.Err() != nil || got != want || text != whole.OutputText() {
		t.Errorf("%v %q\n%s, expected\n%s", stream.Err(), text, got, want)
	}
}

// The events of the Anthropic API in their order, and the counts where its clients look for them.
func TestMessagesStream(t *testing.T) {
	_, url := start(t, fast())
	_, raw := post(t, url+"/v1/messages", `{"model":"m","max_tokens":3,"stream":true,"system":"be kind","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`)
	var kinds []string
	text := ""
	for _, data := range datas(t, raw) {
		e := get[struct {
			Type    string
			Message struct {
				Usage struct {
					Input int64 `json:"input_tokens"`
				}
			}
			Delta struct {
				Text   string
				Reason string `json:"stop_reason"`
			}
			Usage struct {
				Output int64 `json:"output_tokens"`
			}
		}](t, data)
		kinds = append(kinds, e.Type)
		text += e.Delta.Text
		if e.Type == "message_start" && e.Message.Usage.Input == 0 || e.Type == "message_delta" && (e.Usage.Output != 3 || e.Delta.Reason != "max_tokens") {
			t.Errorf("%s", data)
		}
	}
	want := "message_start content_block_start ping content_block_delta content_block_delta content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(kinds, " "); got != want || text != "(simulator) " {
		t.Errorf("%q %s", text, got)
	}
}
