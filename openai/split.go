package openai

// TransferParams is the member in which vLLM is told, and tells, of KV blocks that go from one engine to another.
const TransferParams = "kv_transfer_params"

// Splittable says that one prefill serves all of a request, so that one engine may compute the prompt and another answer: it is one
// prompt with one answer, of which the client wants to see no more than what is generated, and it steers no transfer by itself.
func (r *Request) Splittable(body []byte) bool {
	if r.Op != Chat && r.Op != Completions {
		return false
	}
	for _, only := range []struct{ name, value string }{
		{"n", "1"}, {"best_of", "1"}, {"echo", "false"}, {"prompt_logprobs", "null"}, {TransferParams, "null"},
	} {
		if at, given := r.Get(only.name); given {
			if said := string(body[at.Start:at.End]); said != only.value && said != "null" {
				return false
			}
		}
	}
	at, given := r.Get("prompt")
	return !given || body[at.Start] == '"'
}
