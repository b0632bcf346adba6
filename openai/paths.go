package openai

// slot says what a place in a response means to a meter.
type slot uint8

const (
	// counts, also positions in findings
	promptTokens slot = iota
	cachedTokens
	inputTokens // of the prompt, what no cache was asked about (Anthropic)
	cacheRead
	cacheCreation
	completionTokens
	reasoningTokens
	counters

	ignored
	// objects
	root
	comment // the object of a shim's comment
	usageObject
	inputDetails
	outputDetails
	choice
	delta
	response
	message
	errorObject
	// arrays
	choices
	contents // whose elements are generated content
	anomalies
	// single values
	choiceIndex
	eventType
	objectType
	errorCode
	anomaly
	text    // generated, if not empty
	content // an object that is generated content, such as a function call
)

func (s slot) isArray() bool  { return s == choices || s == contents || s == anomalies }
func (s slot) isObject() bool { return root <= s && s <= errorObject }
func (s slot) isUsage() bool  { return usageObject <= s && s <= outputDetails }

// child returns what the member key of an object means. Only exact paths count: the same names elsewhere are somebody's
// data.
func child(op Op, parent slot, key []byte) slot {
	switch parent {
	case root:
		return ofRoot(op, key)
	case usageObject:
		return ofUsage(op, key)
	case inputDetails:
		return only(key, "cached_tokens", cachedTokens)
	case outputDetails:
		return only(key, "reasoning_tokens", reasoningTokens)
	case comment:
		return ofComment(key)
	case choice:
		return ofChoice(op, key)
	case delta:
		return ofDelta(op, key)
	case response:
		return ofResponse(key)
	case message:
		return only(key, "usage", usageObject)
	case errorObject:
		return only(key, "code", errorCode)
	}
	return ignored
}

// element returns what the elements of an array mean.
func element(array slot) slot {
	switch array {
	case choices:
		return choice
	case anomalies:
		return anomaly
	}
	return content
}

func only(key []byte, name string, s slot) slot {
	if string(key) == name {
		return s
	}
	return ignored
}

func ofRoot(op Op, key []byte) slot {
	switch string(key) {
	case "usage":
		return usageObject
	case "error":
		return errorObject
	case "type":
		return eventType
	case "object":
		return objectType
	}
	switch {
	case (op == Chat || op == Completions) && string(key) == "choices":
		return choices
	case op == Responses && string(key) == "response":
		return response
	case op == Responses && string(key) == "delta":
		return text
	case op == Responses && string(key) == "code":
		return errorCode
	case op == Messages && string(key) == "message":
		return message
	case op == Messages && string(key) == "delta":
		return delta
	}
	return ignored
}

func ofUsage(op Op, key []byte) slot {
	switch op {
	case Responses:
		return ofResponsesUsage(key)
	case Messages:
		return ofMessagesUsage(key)
	}
	switch string(key) {
	case "prompt_tokens":
		return promptTokens
	case "completion_tokens":
		return completionTokens
	case "prompt_tokens_details":
		return inputDetails
	case "completion_tokens_details":
		return outputDetails
	}
	return ignored
}

func ofResponsesUsage(key []byte) slot {
	switch string(key) {
	case "input_tokens":
		return promptTokens
	case "output_tokens":
		return completionTokens
	case "input_tokens_details":
		return inputDetails
	case "output_tokens_details":
		return outputDetails
	}
	return ignored
}

func ofMessagesUsage(key []byte) slot {
	switch string(key) {
	case "input_tokens":
		return inputTokens
	case "output_tokens":
		return completionTokens
	case "cache_read_input_tokens":
		return cacheRead
	case "cache_creation_input_tokens":
		return cacheCreation
	}
	return ignored
}

func ofComment(key []byte) slot {
	switch string(key) {
	case "prompt_tokens":
		return promptTokens
	case "cached_tokens":
		return cachedTokens
	case "completion_tokens":
		return completionTokens
	case "reasoning_tokens":
		return reasoningTokens
	case "anomalies":
		return anomalies
	}
	return ignored
}

func ofChoice(op Op, key []byte) slot {
	switch {
	case string(key) == "index":
		return choiceIndex
	case op == Chat && string(key) == "delta":
		return delta
	case op == Completions && string(key) == "text":
		return text
	}
	return ignored
}

func ofDelta(op Op, key []byte) slot {
	if op == Messages {
		switch string(key) {
		case "text", "thinking", "partial_json":
			return text
		}
		return ignored
	}
	switch string(key) {
	case "content", "reasoning_content", "reasoning", "refusal":
		return text
	case "tool_calls":
		return contents
	case "function_call", "audio":
		return content
	}
	return ignored
}

func ofResponse(key []byte) slot {
	switch string(key) {
	case "usage":
		return usageObject
	case "error":
		return errorObject
	}
	return ignored
}
