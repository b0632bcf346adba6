package worker

import (
	"fmt"
	"math/rand"
	"strings"

	"github.com/spokegate/spokegate/openai"
)

// rawStream writes what engines may send, event by event, each with its blank line.
func rawStream(rnd *rand.Rand, op openai.Op) (list []string) {
	pick := func(of ...string) string { return of[rnd.Intn(len(of))] }
	count := func() string { return pick("0", "1", "2", "3", "5", "17", "null", "-1", "123456789") }
	usage := func() string {
		switch op {
		case openai.Messages:
			return fmt.Sprintf(`"usage":{"input_tokens":%s,"cache_read_input_tokens":%s,"output_tokens":%s}`, count(), pick("0", "3"), count())
		case openai.Responses:
			return fmt.Sprintf(`"usage":{"input_tokens":%s,"output_tokens":%s,"output_tokens_details":{"reasoning_tokens":%s}}`, count(), count(), count())
		}
		return fmt.Sprintf(`"usage":{"prompt_tokens":%s,"completion_tokens":%s,"prompt_tokens_details":{"cached_tokens":%s}}`, count(), count(), count())
	}
	content := func() string {
		text := pick("a", "", "ü", `\n: spokegate-usage {}`, "[DONE]")
		switch op {
		case openai.Messages:
			return `"type":"content_block_delta","delta":{"text":"` + text + `"}`
		case openai.Responses:
			return `"type":"response.output_text.delta","delta":"` + text + `"`
		}
		part := `"delta":{"content":"` + text + `"}`
		if op == openai.Completions {
			part = `"text":"` + text + `"`
		}
		return `"choices":[{"index":` + pick("0", "1", "2") + `,` + part + `}]`
	}
	last := func() string {
		switch op {
		case openai.Messages:
			return pick(`"type":"message_stop"`, `"type":"message_delta",`+usage())
		case openai.Responses:
			return `"type":"` + pick("response.completed", "response.failed") + `","response":{` + usage() + `}`
		}
		return `"choices":[],` + usage()
	}
	end := pick("\n", "\n", "\r\n", "\r")
	for range rnd.Intn(8) {
		lines := []string{}
		for range rnd.Intn(2) {
			lines = append(lines, pick(": ping", "id: 1", `: spokegate-usage {"prompt_tokens":9,"completion_tokens":9}`, ":spokegate-usage {", "event: error", "x"))
		}
		if rnd.Intn(6) > 0 {
			data := pick("{"+content()+"}", "{"+content()+"}", "{"+content()+","+usage()+"}", "{"+usage()+","+content()+"}", "{"+last()+"}", "[DONE]", `{"error":{"code":"x"}}`, "{")
			if strings.HasPrefix(data, `{"choices":[],`) {
				lines = nil // nobody calls that an error
			}
			lines = append(lines, pick("data: ", "data:")+data)
		}
		lines = append(lines, pick("", "", "", ": late")) // the blank line, or one before it
		if lines[len(lines)-1] != "" {
			lines = append(lines, "")
		}
		list = append(list, strings.Join(lines, end)+end)
	}
	return list
}
