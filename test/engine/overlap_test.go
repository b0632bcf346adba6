//go:build engine

package engine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// wantOverlap is the share of requests whose believed cached tokens are the engine's.
const wantOverlap = 0.99

// testOverlap: through the door and Envoy, what the picker believes that the worker has of a prompt in its cache is what the
// real engine then reports, for conversations of many kinds that go on and on.
func testOverlap(t *testing.T) {
	awaitFirst(t)
	eventually(t, patience, "the picker knows what the worker holds", func() bool { return strings.Contains(doorPage(t, "/fleet"), `"index":"indexed"`) })
	same, all := 0, 0
	for i, c := range talks() {
		n, of := c.run(t, i, scripted)
		same, all = same+n, all+of
	}
	say("with scripted answers %d of %d predictions are the engine's count", same, all)
	if float64(same) < wantOverlap*float64(all) {
		t.Errorf("%d of %d predictions are the engine's count, want %v", same, all, wantOverlap)
	}
	same, all = 0, 0
	for i, c := range talks() {
		n, of := c.run(t, 100+i, generated)
		same, all = same+n, all+of
	}
	say("with generated answers %d of %d predictions are the engine's count", same, all)
	if page := doorPage(t, "/readyz"); strings.Contains(page, "diverging") {
		t.Errorf("a worker diverges:\n%s", page)
	}
}

// talk is a conversation: how it begins, and what is asked and (scripted) answered in turn.
type talk struct {
	system, user, assistant string
	more                    map[string]any
	calls                   bool // the assistant calls a tool, and gets an answer
}

func talks() []talk {
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "search", "description": "Looks for é & <b>",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}, "required": []string{"q"}}}}
	long := strings.Repeat("You are a careful assistant who thinks before it speaks. ", 20)
	return []talk{
		{"", "What is the weather like today, and why is it so? ", "It is sunny, since there are few clouds. ", nil, false},
		{long, "Please explain this to me once more. ", "Gladly, and as often as you like. ", nil, false},
		{long, "And what of the other question? ", "That one is harder. ", nil, false},
		{"Réponds en français. 你好。", "Où est la gare? 東京駅はどこですか。👩‍👩‍👧 e\u0301 ", "À gauche. 左です。🇩🇪 ", nil, false},
		{long, "Look it up, please, with the tool. ", "I have looked it up. ", map[string]any{"tools": []any{tool}, "tool_choice": "none"}, true},
		{"", "func main() {\n\tfmt.Println(\"hi\")\n}\n\n", "```go\nfunc f() {}\n```\n", map[string]any{"cache_salt": ""}, false},
	}
}

// answering says what the assistant's turn is: as generated, or as the script has it.
type answering func(c talk, turn int, said string) string

func scripted(c talk, turn int, _ string) string {
	return strings.Repeat(c.assistant, 3+turn)
}

func generated(_ talk, _ int, said string) string { return said }

const turns = 9

// run holds a conversation and says how many predictions of how many were the engine's count.
func (c talk) run(t *testing.T, number int, answers answering) (same, of int) {
	t.Helper()
	var messages []any
	say1 := func(role, content string) {
		messages = append(messages, map[string]any{"role": role, "content": content})
	}
	if c.system != "" {
		say1("system", fmt.Sprintf("%s (%d)", c.system, number))
	}
	for turn := range turns {
		say1("user", fmt.Sprintf("%d.%d %s", number, turn, strings.Repeat(c.user, 2)))
		body := map[string]any{"messages": messages, "max_tokens": 5 + turn, "ignore_eos": true}
		for k, v := range c.more {
			if v != "" {
				body[k] = v
			}
		}
		chosen, reported := stage(t, "chosen"), stage(t, "reported")
		a := the.ask(t.Context(), body)
		var out struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   struct {
				Prompt  float64 `json:"prompt_tokens"`
				Details struct {
					Cached float64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != http.StatusOK || len(out.Choices) != 1 {
			t.Fatalf("%d %v %s", a.status, err, a.body)
		}
		usageOf(t, a.admission) // the flight is over, and so is its comparison
		believed := stage(t, "chosen") - chosen
		// The engine computes the last token of a prompt in any case, and so never finds all of its blocks.
		believed = min(believed, float64(int(out.Usage.Prompt-1)/blockSize*blockSize))
		switch cached := out.Usage.Details.Cached; {
		case cached != stage(t, "reported")-reported:
			t.Errorf("conversation %d, turn %d: the engine reports %v, and %v is counted", number, turn, cached, stage(t, "reported")-reported)
		case believed == cached:
			same++
		default:
			t.Logf("conversation %d, turn %d: %v believed, %v reported, of %v", number, turn, believed, cached, out.Usage.Prompt)
		}
		of++
		if c.calls {
			id := fmt.Sprintf("call-%d", turn)
			messages = append(messages, map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": id, "type": "function",
				"function": map[string]any{"name": "search", "arguments": fmt.Sprintf(`{"q": "é %d", "n": [1, 2.50, null]}`, turn)}}}},
				map[string]any{"role": "tool", "tool_call_id": id, "content": strings.Repeat(`{"found": "this & that"} `, 3)})
		}
		say1("assistant", answers(c, turn, out.Choices[0].Message.Content))
	}
	return same, of
}

func doorPage(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + the.ops + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stage reads how many tokens were in a cache, by one stage; 0 where it is not counted yet.
func stage(t *testing.T, name string) float64 {
	t.Helper()
	series := fmt.Sprintf(`spokegate_pick_cached_tokens_total{endpoint="gpus",stage="%s"} `, name)
	for s := bufio.NewScanner(strings.NewReader(doorPage(t, "/metrics"))); s.Scan(); {
		if value, is := strings.CutPrefix(s.Text(), series); is {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
