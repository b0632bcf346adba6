package openai

import (
	"unicode"
	"unicode/utf8"
)

// asked are the top-level members and the members of stream_options that a door or an engine acts on, beside those that
// steer. A key that a case-blind parser would take for one of them is refused.
var asked = []string{
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "background",
	"include_usage", "include_obfuscation", "continuous_usage_stats",
	"messages", "prompt", "input", "system", "instructions", "tools", "tool_choice", "response_format",
	"temperature", "top_p", "top_k", "stop", "seed", "user", "metadata", "store", "logprobs", "best_of", "echo",
	"encoding_format", "dimensions", "reasoning_effort", "service_tier",
}

// steering are the top-level members by which a client could reach past the gateway: choose a worker, a rank, a queue
// position, a cache or another request, load an adapter, or make the engine run or fetch what the client names. They pass
// only where the endpoint allows them.
var steering = []string{
	// transfer of KV and encoder caches between workers (vLLM, SGLang, TensorRT-LLM, Dynamo)
	"kv_transfer_params", "ec_transfer_params", "disaggregated_params", "bootstrap_host", "bootstrap_port",
	"bootstrap_room", "nvext",
	// which rank serves
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank",
	// order in the queue; sharing of caches and sessions; the engine's own name for the request
	"priority", "cache_salt", "extra_key", "session_id", "session_params", "ngram_corpus_id", "request_id", "rid",
	// state that the engine keeps of other requests
	"previous_response_id", "conversation",
	// tensors in the place of a prompt, which the engine would load and nobody can count
	"prompt_embeds", "input_embeds",
	// adapters, code and templates that the engine would run, arguments of its extensions and loaders
	"lora_path", "custom_logit_processor", "logits_processors", "custom_params", "vllm_xargs", "chat_template",
	"media_io_kwargs", "mm_processor_kwargs",
}

// known maps each name above to itself, so that a look-up by bytes needs no new string. Never written after start.
var known = index(asked, steering)

func index(lists ...[]string) map[string]string {
	m := make(map[string]string)
	for _, list := range lists {
		for _, name := range list {
			m[name] = name
		}
	}
	return m
}

// Steering returns the names of the top-level members present that steer an engine, in the body's order; whatever their
// value, also null.
func (r *Request) Steering() []string {
	var found []string
	for _, m := range r.Members {
		if isSteering(m.Name) {
			found = append(found, m.Name)
		}
	}
	return found
}

func isSteering(name string) bool {
	for _, s := range steering {
		if s == name {
			return true
		}
	}
	return false
}

// fold returns the form that all names share which differ by Unicode simple case folding only. It is the name itself for the
// usual lower-case ASCII name, without allocating.
func fold(name string) string {
	for i := 0; i < len(name); i++ {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return foldAll(name)
		}
	}
	return name
}

func foldAll(name string) string {
	b := make([]byte, 0, len(name))
	for _, r := range name {
		b = utf8.AppendRune(b, foldRune(r))
	}
	return string(b)
}

// foldRune returns the least rune of r's folding orbit, in lower case if that is ASCII: U+017F gives s, U+212A gives k.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}
