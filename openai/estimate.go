package openai

import "math"

// mediaTokens is what one image, sound or film counts in an estimate, whatever its size: about what engines make of an
// image of a megapixel, or of a minute of speech. Its bytes say little: the same picture has ten sizes.
const mediaTokens = 1000

// bytesPerToken is what tokenizers of the day need for prose and code in most languages.
const bytesPerToken = 4

// PromptSize is how much prompt a request brings, as far as it shows without a tokenizer: all strings of messages, system,
// instructions, prompt, input, suffix and documents, decoded; tools, functions and a tool's arguments as they are written.
type PromptSize struct {
	Text   int64 // bytes of text
	Media  int64 // images, sounds, films and files, inline or by address
	Tokens int64 // of prompts that are tokens already
}

// Estimate returns the prompt's tokens, rounded up.
func (p PromptSize) Estimate() int64 {
	text := p.Text / bytesPerToken
	if p.Text%bytesPerToken > 0 {
		text++
	}
	return plus(plus(text, times(p.Media, mediaTokens)), p.Tokens)
}

// OutputAsked returns how many tokens the request lets an engine generate at most, over all its choices. given is false when
// it sets no limit: then the engine's own holds for each of Choices. Where a request sets two limits, the larger counts, as
// engines disagree which wins.
func (r *Request) OutputAsked() (n int64, given bool) {
	if r.Op == Embeddings {
		return 0, true
	}
	if !r.limited {
		return 0, false
	}
	return times(r.limit, r.Choices()), true
}

// Choices returns how many answers the engine generates, 1 at least: n or best_of for each prompt.
func (r *Request) Choices() int64 {
	switch r.Op {
	case Chat:
		return max(r.n, 1)
	case Completions:
		return times(max(r.n, r.bestOf, 1), max(r.prompts, 1))
	}
	return 1
}

// limits says whether the member is a limit of generated tokens to the operation.
func (o Op) limits(name string) bool {
	switch o {
	case Chat:
		return name == "max_tokens" || name == "max_completion_tokens"
	case Completions, Messages:
		return name == "max_tokens"
	case Responses:
		return name == "max_output_tokens"
	}
	return false
}

// plus and times stop at the largest number. Their arguments are not negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}
