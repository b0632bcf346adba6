package openai

// GenAI returns the operation's name in OpenTelemetry's conventions for generative AI (gen_ai.operation.name), which know
// fewer than there are: a conversation is a chat by whatever path it comes. What is none of them is "unknown".
func (o Op) GenAI() string {
	switch o {
	case Chat, Responses, Messages:
		return "chat"
	case Completions:
		return "text_completion"
	case Embeddings:
		return "embeddings"
	default:
		return "unknown"
	}
}
