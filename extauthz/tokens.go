package extauthz

import (
	"fmt"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
)

// size is how many tokens a request is believed to need.
type size struct{ prompt, output int64 }

// sizeOf estimates the prompt, and takes for each answer what was asked for, or the model's most where that is less or nothing
// was. What it really was settles the difference when the flight ends.
func sizeOf(req *openai.Request, m *policy.Model) size {
	output := req.Choices() * m.Tokens.OutputMost // far from overflow: a million each, and n and the prompts of a body are bounded
	if asked, given := req.OutputAsked(); given { // of all answers together, as output is
		output = min(output, asked)
	}
	return size{prompt: min(req.Prompt.Estimate(), policy.MaxQuota), output: min(output, policy.MaxQuota)}
}

func (s size) tokens() int64 { return s.prompt + s.output }

func (s size) String() string {
	return fmt.Sprintf("This request counts as %d tokens: about %d of prompt, and up to %d of answer.", s.tokens(), s.prompt, s.output)
}

// countsTokens says whether any of the limits is one of tokens.
func countsTokens(ls []policy.Limit) bool {
	for i := range ls {
		if l := &ls[i]; l.TokensPerMinute > 0 || l.TokensPerDay > 0 || l.TokensPerMonth > 0 {
			return true
		}
	}
	return false
}
