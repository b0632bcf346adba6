package prompt_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/prompt"
)

// BenchmarkRender330K renders the hundred messages of a long turn: code, with an escape every ten bytes, and prose.
func BenchmarkRender330K(b *testing.B) {
	b.Run("code", func(b *testing.B) {
		render330K(b, "\tif err != nil {\n\t\treturn fmt.Errorf(\"open %s: %w\", name, err)\n\t}\n")
	})
	b.Run("prose", func(b *testing.B) {
		render330K(b, "The worker that holds most of the prompt is not always the one that answers first, for it may have much to do already.\n")
	})
}

func render330K(b *testing.B, line string) {
	text := strings.Repeat(line, 3300/len(line))
	var ms []message
	for i := range 100 {
		ms = append(ms, message{[]string{"user", "assistant"}[i%2], fmt.Sprint(i, text)})
	}
	body, err := json.Marshal(map[string]any{"model": "m", "messages": ms})
	if err != nil {
		b.Fatal(err)
	}
	req, scanErr := openai.Scan(openai.Chat, body)
	if scanErr != nil {
		b.Fatal(scanErr)
	}
	out := prompt.Render(nil, openai.Chat, req, body)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		out = prompt.Render(out[:0], openai.Chat, req, body)
	}
}
