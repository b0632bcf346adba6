package openai

import "strconv"

func appendCount(b []byte, n *int64) []byte {
	if n == nil {
		return append(b, '?')
	}
	return strconv.AppendInt(b, *n, 10)
}

const (
	a1   = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	done = "data: [DONE]\n\n"
)

func usageChunk(s string) string { return `data: {"choices":[],"usage":` + s + "}\n\n" }

func choiceChunk(index, completion string) string {
	return `data: {"choices":[{"index":` + index + `,"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":` + completion + "}}\n\n"
}

// want: prompt cached completion reasoning counted_from events flags !anomalies
var meterCases = []struct {
	name string
	op   Op
	json bool
	sent string
	want string
}{
	// how streams are written
	{"empty stream", Chat, false, "", "? ? ? ? none events=0"},
	{"byte order mark first", Chat, false, "\xEF\xBB\xBF" + usageChunk(`{"prompt_tokens":7}`), "7 ? ? ? engine events=0"},
	{"byte order mark later", Chat, false, ":\n\xEF\xBB\xBF" + usageChunk(`{"prompt_tokens":7}`), "? ? ? ? none events=0"},
	{"half a byte order mark", Chat, false, "\xEF\xBB" + usageChunk(`{"prompt_tokens":7}`) + a1, "? ? 1 ? events events=1"},
	{"half a byte order mark alone on its line", Chat, false, ": x\n" + a1 + "\xEF\n" + a1, "? ? 2 ? events events=2"},
	{"half a byte order mark as the first line", Chat, false, "\xEF\n" + a1, "? ? 1 ? events events=1"},
	{"CR only", Chat, false, "data: {\"choices\":[],\rdata: \"usage\":{\"prompt_tokens\":7}}\r\rdata: [DONE]\r\r", "7 ? ? ? engine events=0 terminal"},
	{"CRLF inside an event of two lines", Chat, false, "data: {\"choices\":[],\r\ndata: \"usage\":{\"prompt_tokens\":7}}\r\n\r\n", "7 ? ? ? engine events=0"},
	{"mixed line ends", Chat, false, "data: {\"usage\":\r\ndata: {\"prompt_tokens\"\rdata: :7}}\n\r\n", "7 ? ? ? engine events=0"},
	{"several data lines", Chat, false, "data: {\"usage\":\ndata\ndata:\ndata: {\"prompt_tokens\":7}}\n\n", "7 ? ? ? engine events=0"},
	{"a line end splits a number", Chat, false, "data: {\"usage\":{\"prompt_tokens\":1\ndata: 2}}\n\n", "? ? ? ? none events=0 !bad_json"},
	{"a line end splits a string", Chat, false, "data: {\"choices\":[{\"delta\":{\"content\":\"a\ndata: b\"}}]}\n\n", "? ? ? ? none events=0 !bad_json"},
	{"two events without a blank line", Chat, false, "data: {\"usage\":{\"prompt_tokens\":7}}\ndata: {}\n\n", "? ? ? ? none events=0 !bad_json"},
	{"field that only begins like data", Chat, false, "database: {\"usage\":{\"prompt_tokens\":7}}\n\n", "? ? ? ? none events=0"},
	{"space before the colon", Chat, false, "data : {\"usage\":{\"prompt_tokens\":7}}\n\n", "? ? ? ? none events=0"},
	{"comments and unknown fields between", Chat, false, ": ping\nid: 3\nretry: 10\n" + a1 + ": ping\n\n" + done, "? ? 1 ? events events=1 terminal"},
	{"NUL in the data", Chat, false, "data: {\"usage\":\x00{\"prompt_tokens\":7}}\n\n" + a1, "? ? 1 ? events events=1 !bad_json"},
	{"not JSON", Chat, false, "data: hello\n\n", "? ? ? ? none events=0 !bad_json"},

	// the end
	{"done without an end of line", Chat, false, a1 + "data: [DONE]", "? ? 1 ? events events=1 terminal"},
	{"done cut short", Chat, false, a1 + "data: [DONE", "? ? 1 ? events events=1"},
	{"done as text", Chat, false, `data: {"choices":[{"delta":{"content":"data: [DONE]\n\n"}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"done in a string", Chat, false, "data: \"[DONE]\"\n\n", "? ? ? ? none events=0"},
	{"message_stop in a chat", Chat, false, "data: {\"type\":\"message_stop\"}\n\n", "? ? ? ? none events=0"},
	{"message_stop", Messages, false, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "? ? ? ? none events=0 terminal"},
	{"response.incomplete", Responses, false, "data: {\"type\":\"response.incomplete\",\"response\":{\"usage\":null}}\n\n", "? ? ? ? none events=0 terminal"},
	{"response.failed", Responses, false, "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"x\"}}}\n\n", "? ? ? ? none events=0 terminal failed"},
	{"response.created is not the end", Responses, false, "data: {\"type\":\"response.created\",\"response\":{\"error\":null,\"usage\":null}}\n\n", "? ? ? ? none events=0"},

	// content
	{"cut inside an event", Chat, false, a1 + `data: {"choices":[{"delta":{"content":"b"`, "? ? 1 ? events events=1"},
	{"empty content and a role", Chat, false, `data: {"choices":[{"delta":{"role":"assistant","content":"","tool_calls":[],"function_call":null}}]}` + "\n\n", "? ? ? ? none events=0"},
	{"escaped content", Chat, false, `data: {"choices":[{"delta":{"content":"\n"}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"reasoning and tool calls", Chat, false, `data: {"choices":[{"delta":{"reasoning_content":"x"}}]}` + "\n\n" + `data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}` + "\n\n", "? ? 2 ? events events=2"},
	{"content in parts", Chat, false, `data: {"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"completions", Completions, false, `data: {"choices":[{"text":"a"}]}` + "\n\n" + `data: {"choices":[{"text":""}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"content under the wrong path", Chat, false, `data: {"delta":{"content":"a"},"choices":{"delta":{"content":"a"}},"x":[{"delta":{"content":"a"}}]}` + "\n\n", "? ? ? ? none events=0"},
	{"responses deltas", Responses, false, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\ndata: {\"type\":\"response.output_text.done\",\"text\":\"a\"}\n\n", "? ? 1 ? events events=1"},
	{"messages deltas", Messages, false, "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\ndata: {\"delta\":{\"thinking\":\"b\"}}\n\ndata: {\"delta\":{\"partial_json\":\"{\"}}\n\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n", "? ? 3 ? events events=3"},

	// usage
	{"all details", Chat, true, `{"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}}`, "7 2 5 3 engine events=0 terminal"},
	{"usage inside choices", Chat, true, `{"choices":[{"usage":{"prompt_tokens":1},"message":{"usage":{"prompt_tokens":2}}}],"x":{"usage":{"prompt_tokens":3}}}`, "? ? ? ? none events=0 terminal"},
	{"usage in a string", Chat, false, `data: {"choices":[{"delta":{"content":"\"},\"usage\":{\"prompt_tokens\":9}"}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"escaped key", Chat, true, `{"us\u0061ge":{"prompt\u005ftokens":7}}`, "7 ? ? ? engine events=0 terminal"},
	{"keys in other case", Chat, true, `{"Usage":{"prompt_tokens":7},"usage":{"Prompt_tokens":7}}`, "? ? ? ? none events=0 terminal"},
	{"long key", Chat, true, `{"` + longKey + `":{"prompt_tokens":7}}`, "? ? ? ? none events=0 terminal"},
	{"negative", Chat, true, `{"usage":{"prompt_tokens":-7,"completion_tokens":3}}`, "? ? 3 ? engine events=0 terminal !bad_usage"},
	{"fraction", Chat, true, `{"usage":{"prompt_tokens":7.5}}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"exponent", Chat, true, `{"usage":{"prompt_tokens":7e2}}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"huge", Chat, true, `{"usage":{"prompt_tokens":99999999999999999999999999999999999999999999999999999999999999999999999999}}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"beyond 2^53", Chat, true, `{"usage":{"prompt_tokens":9007199254740992}}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"string", Chat, true, `{"usage":{"prompt_tokens":"7"}}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"usage is a list", Chat, true, `{"usage":[7]}`, "? ? ? ? none events=0 terminal !bad_usage"},
	{"nulls", Chat, true, `{"usage":{"prompt_tokens":null,"completion_tokens":null,"prompt_tokens_details":null}}`, "? ? ? ? none events=0 terminal"},
	{"null does not wipe out", Chat, false, usageChunk(`{"prompt_tokens":7,"completion_tokens":3}`) + usageChunk("null") + usageChunk(`{"prompt_tokens":null}`), "7 ? 3 ? engine events=0"},
	{"last value wins", Chat, true, `{"usage":{"prompt_tokens":1,"prompt_tokens":7},"usage":{"completion_tokens":2}}`, "7 ? 2 ? engine events=0 terminal"},
	{"reasoning above completion", Chat, true, `{"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":3}}}`, "? ? 2 2 engine events=0 terminal !reasoning_above_completion"},
	{"explicit zero in a stream with content", Chat, false, a1 + usageChunk(`{"prompt_tokens":7,"completion_tokens":0}`), "7 ? 0 ? engine events=1"},
	{"explicit zero before the end mark", Chat, false, a1 + choiceChunk("0", "0") + done, "7 ? 0 ? engine events=2 terminal"},
	{"responses JSON", Responses, true, `{"object":"response","error":null,"usage":{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":1}}}`, "9 ? 4 1 engine events=0 terminal"},
	{"messages JSON", Messages, true, `{"type":"message","usage":{"input_tokens":9,"cache_creation_input_tokens":2,"cache_read_input_tokens":4,"output_tokens":6}}`, "15 4 6 ? engine events=0 terminal"},
	{"embeddings without usage", Embeddings, true, `{"data":[{"embedding":[0.1,-2e-3]}]}`, "? ? 0 ? none events=0 terminal"},
	{"embeddings with a completion count", Embeddings, true, `{"usage":{"prompt_tokens":8,"completion_tokens":8}}`, "8 ? 0 ? engine events=0 terminal"},

	// cuts and choices
	{"running count behind the events", Chat, false, choiceChunk("0", "1") + a1 + a1, "7 ? 3 ? events events=3"},
	{"messages cut after the start", Messages, false, "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\ndata: {\"delta\":{\"text\":\"a\"}}\n\ndata: {\"delta\":{\"text\":\"b\"}}\n\n", "9 ? 2 ? events events=2"},
	{"two choices count by themselves", Chat, false, choiceChunk("0", "5") + choiceChunk("1", "4") + choiceChunk("0", "6"), "7 ? 10 ? engine events=3"},
	{"two choices and the total", Chat, false, choiceChunk("0", "5") + choiceChunk("1", "4") + usageChunk(`{"completion_tokens":12}`), "7 ? 12 ? engine events=2"},
	{"two choices with more than there can be", Chat, false, choiceChunk("0", "9007199254740991") + choiceChunk("1", "1"), "7 ? 9007199254740991 ? engine events=2 !bad_usage"},
	{"a prompt of more than there can be", Messages, true, `{"usage":{"input_tokens":9007199254740991,"cache_read_input_tokens":1}}`, "? 1 ? ? engine events=0 terminal !bad_usage"},
	{"choice out of range", Chat, false, choiceChunk("99999", "5"), "7 ? 1 ? events events=1"},
	{"two choices in one event", Chat, false, `data: {"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}],"usage":{"completion_tokens":2}}` + "\n\n", "? ? 2 ? engine events=1"},

	// errors
	{"error null", Chat, true, `{"error":null,"usage":{"prompt_tokens":7}}`, "7 ? ? ? engine events=0 terminal"},
	{"error empty or false", Chat, false, "data: {\"error\":\"\"}\n\ndata: {\"error\":false}\n\n", "? ? ? ? none events=0"},
	{"error text", Chat, false, "data: {\"error\":\"x\"}\n\n", "? ? ? ? none events=0 failed"},
	{"error number", Chat, false, "data: {\"error\":500}\n\n", "? ? ? ? none events=0 failed"},
	{"error by the event field", Chat, false, "event: error\ndata: {\"message\":\"x\"}\n\n", "? ? ? ? none events=0 failed"},
	{"error by type", Messages, false, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", "? ? ? ? none events=0 failed"},
	{"error inside choices", Chat, false, `data: {"choices":[{"error":{"code":"upstream_cut"},"delta":{"content":"a"}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"upstream cut", Chat, false, a1 + `data: {"error":{"message":"x","type":"server_error","param":null,"code":"upstream_cut"}}` + "\n\n", "? ? 1 ? events events=1 failed upstream_cut"},
	{"upstream cut as text", Chat, false, `data: {"choices":[{"delta":{"content":"\"error\":{\"code\":\"upstream_cut\"}"}}]}` + "\n\n", "? ? 1 ? events events=1"},
	{"upstream cut in responses", Responses, false, "data: {\"type\":\"error\",\"code\":\"upstream_cut\"}\n\n", "? ? ? ? none events=0 failed upstream_cut"},

	// comments of the shim
	{"comment in the event", Chat, false, ": spokegate-usage {\"prompt_tokens\":7,\"cached_tokens\":4,\"completion_tokens\":3}\n" + a1, "7 4 3 ? engine events=1"},
	{"comment alone", Chat, false, ": spokegate-usage {\"prompt_tokens\":7,\"reasoning_tokens\":1}\n\n" + a1, "7 ? 1 1 events events=1"},
	{"comment after the data", Chat, false, "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n: spokegate-usage {\"prompt_tokens\":7}\n\n", "7 ? ? ? engine events=0"},
	{"comment before the data", Chat, false, ": spokegate-usage {\"prompt_tokens\":7,\"cached_tokens\":3}\ndata: {\"usage\":{\"prompt_tokens\":4}}\n\n", "4 3 ? ? engine events=0"},
	{"comment alone after content", Chat, false, a1 + a1 + ": spokegate-usage {\"completion_tokens\":1}\n\n", "? ? 1 ? engine events=2"},
	{"comment alone, then content", Chat, false, a1 + ": spokegate-usage {\"completion_tokens\":1}\n\n" + a1, "? ? 2 ? events events=2"},
	{"comment alone that says less", Chat, false, choiceChunk("0", "5") + a1 + ": spokegate-usage {\"cached_tokens\":4,\"events\":2}\n\n", "? 4 2 ? events events=2"},
	{"comment alone that says nothing", Chat, false, choiceChunk("0", "5") + ": spokegate-usage {}\n\n", "? ? 1 ? events events=1"},
	{"comment alone with doubts", Chat, false, ": spokegate-usage {\"cached_tokens\":4,\"anomalies\":[\"bad_usage\",\"cached_above_prompt\",\"x\"]}\n\n", "? 4 ? ? engine events=0 !bad_usage !cached_above_prompt"},
	{"comment alone, its doubts taken back", Chat, false, ": spokegate-usage {\"anomalies\":[\"cached_above_prompt\"]}\n\n: spokegate-usage {\"prompt_tokens\":4}\n\n", "4 ? ? ? engine events=0"},
	{"comment with doubts that are none", Chat, false, ": spokegate-usage {\"prompt_tokens\":4,\"anomalies\":\"bad_usage\",\"terminal\":true,\"failed\":true}\n\n", "4 ? ? ? engine events=0"},
	{"comment and error in one event", Chat, false, ": spokegate-usage {\"completion_tokens\":1}\ndata: {\"error\":{}}\n\n", "? ? 1 ? engine events=0 failed"},
	{"comment without a space", Chat, false, ":spokegate-usage {\"prompt_tokens\":7}\r\n\r\n", "7 ? ? ? engine events=0"},
	{"comment at the end", Chat, false, a1 + ": spokegate-usage {\"prompt_tokens\":7,\"completion_tokens\":3}", "7 ? 3 ? engine events=1"},
	{"comment beside data at the end", Chat, false, a1 + a1[:len(a1)-1] + ": spokegate-usage {\"prompt_tokens\":7,\"completion_tokens\":3}", "7 ? 3 ? engine events=2"},
	{"comment cut short", Chat, false, a1 + ": spokegate-usage {\"prompt_tokens\":7,\"completion_tokens\":3", "? ? 1 ? events events=1"},
	{"comment before an event cut short", Chat, false, a1 + ": spokegate-usage {\"prompt_tokens\":7}\ndata: {\"choi", "? ? 1 ? events events=1"},
	{"comment with the end mark", Chat, false, a1 + a1 + ": spokegate-usage {\"completion_tokens\":1}\n" + done, "? ? 1 ? engine events=2 terminal"},
	{"comment that is bad", Chat, false, ": spokegate-usage {\"prompt_tokens\":7\n\n", "? ? ? ? none events=0 !bad_usage"},
	{"comment of another name", Chat, false, ": spokegate-usages {\"prompt_tokens\":7}\n\n", "? ? ? ? none events=0"},
	{"comments of two choices", Chat, false, commented("0", "5") + commented("1", "4"), "? ? 9 ? engine events=2"},
	{"comments of two choices, cut", Chat, false, commented("0", "5") + commented("1", "4") + ": spokegate-usage {\"completion_tokens\":6}\n", "? ? 9 ? engine events=2"},
	{"comment in messages is the whole prompt", Messages, false, ": spokegate-usage {\"prompt_tokens\":13,\"cached_tokens\":4}\n\n", "13 4 ? ? engine events=0"},
	{"comment as text", Chat, false, `data: {"choices":[{"delta":{"content":"\n: spokegate-usage {\"prompt_tokens\":7}\n"}}]}` + "\n\n", "? ? 1 ? events events=1"},

	// single values
	{"JSON cut after its usage", Chat, true, `{"usage":{"prompt_tokens":7,"completion_tokens":3},"choi`, "7 ? 3 ? engine events=0"},
	{"JSON cut inside a number", Chat, true, `{"usage":{"prompt_tokens":7,"completion_tokens":3`, "7 ? ? ? engine events=0"},
	{"JSON with bytes after", Chat, true, `{"usage":{"prompt_tokens":7}} x`, "? ? ? ? none events=0 !bad_json"},
	{"HTML", Chat, true, "<html>", "? ? ? ? none events=0 !bad_json"},
	{"content in JSON is no event", Chat, true, `{"choices":[{"delta":{"content":"a"}}]}`, "? ? ? ? none events=0 terminal"},
	{"empty JSON", Chat, true, "", "? ? ? ? none events=0"},
}

func commented(index, completion string) string {
	return ": spokegate-usage {\"completion_tokens\":" + completion + "}\n" +
		`data: {"choices":[{"index":` + index + `,"delta":{"content":"a"}}]}` + "\n\n"
}

const longKey = "usageusageusageusageusageusageusageusageusageusageusageusageusageusageusage"
