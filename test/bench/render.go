package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/prompt"
	"github.com/spokegate/spokegate/prompt/text"
)

// chatML is the template that most models' are variations of.
const chatML = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"

var chatMLTokens = []*workerv1.AddedToken{{Content: "<|im_start|>"}, {Content: "<|im_end|>"}, {Content: "<|endoftext|>"}}

// renderChat renders a conversation of a hundred turns, 330 KB, by its model's template.
func renderChat() (micro, error) {
	m, err := text.New(&workerv1.Profile{ChatTemplate: chatML, AddedTokens: chatMLTokens})
	if err != nil {
		return micro{}, err
	}
	req, body, err := conversation()
	if err != nil {
		return micro{}, err
	}
	var out []byte
	return micro{name: "prompt.render_330k", unit: "µs", times: inMicros, cpu: true, note: "a copy and hash of the same bytes; 100 turns by a template",
		ours: func() error {
			out, err = m.Render(out[:0], req, body)
			if err == nil && len(out) < 300_000 {
				err = fmt.Errorf("%d bytes are rendered", len(out))
			}
			return err
		}, against: touched(body)}, nil
}

// renderOwn is the same by our own rules, as prompts are compared whose template is not known.
func renderOwn() (micro, error) {
	req, body, err := conversation()
	if err != nil {
		return micro{}, err
	}
	var out []byte
	return micro{name: "prompt.own_330k", unit: "µs", times: inMicros, cpu: true, note: "a copy and hash of the same bytes; 100 turns by our own rules",
		ours: func() error { out = prompt.Render(out[:0], req.Op, req, body); return nil }, against: touched(body)}, nil
}

func conversation() (*openai.Request, []byte, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var ms []message
	for i := range 100 {
		ms = append(ms, message{[]string{"user", "assistant"}[i%2], fmt.Sprint(i, " ", words(3200))})
	}
	body, err := json.Marshal(map[string]any{"model": "bench", "messages": ms})
	if err != nil {
		return nil, nil, err
	}
	return scan(openai.Chat, body)
}

// scan keeps a nil *openai.Error from becoming an error that is not nil.
func scan(op openai.Op, body []byte) (*openai.Request, []byte, error) {
	req, bad := openai.Scan(op, body)
	if bad != nil {
		return nil, nil, errors.New("the body is not taken")
	}
	return req, body, nil
}

// normalise brings 330 KB to the form that a tokenizer brings it to: NFC between added tokens; beside the same without.
func normalise(name, line string) func() (micro, error) {
	return func() (micro, error) {
		body, err := json.Marshal(map[string]any{"model": "bench", "prompt": strings.Repeat(line, 330_000/len(line))})
		if err != nil {
			return micro{}, err
		}
		req, body, err := scan(openai.Completions, body)
		if err != nil {
			return micro{}, err
		}
		nfc, failed := text.New(&workerv1.Profile{Normalizer: "nfc", AddedTokens: chatMLTokens})
		none, err := text.New(&workerv1.Profile{AddedTokens: chatMLTokens})
		if err = errors.Join(err, failed); err != nil {
			return micro{}, err
		}
		var out []byte
		return micro{name: name, unit: "µs", times: inMicros, cpu: true, note: "the same prompt as it is",
			ours:    func() (err error) { out, err = nfc.Render(out[:0], req, body); return err },
			against: func() { out, _ = none.Render(out[:0], req, body) }}, nil
	}
}

const (
	englishLine    = "The scheduler asks each worker in turn, and takes the one that answers first, for it may have much to do already.\n"
	vietnameseLine = "Bộ lập lịch hỏi lần lượt từng máy và chọn máy trả lời trước, vì máy kia có thể đang bận nhiều việc.\n"
	chineseLine    = "调度器依次询问每个工作节点，并选择最先回答的那一个，因为其他节点可能已经有很多工作要做。\n"
)
