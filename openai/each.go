package openai

// Each calls f for every member of an object or element of an array, in order, until f returns false. key is the member's
// name as written, with its quotes (decode it with [Unquote]), nil in arrays; v is the value as written, without white space
// around it. Any other value has no parts. value must be JSON that [Scan] accepted; of anything else it visits what it can
// and stops.
func Each(value []byte, f func(key, v []byte) bool) {
	i := skipSpace(value, 0)
	if i >= len(value) || value[i] != '{' && value[i] != '[' {
		return
	}
	object := value[i] == '{'
	for i = skipSpace(value, i+1); i < len(value) && value[i] != '}' && value[i] != ']'; {
		var key []byte
		if object {
			end := valueEnd(value, i)
			key = value[i:end]
			i = skipSpace(value, skipSpace(value, end)+1) // over the colon
		}
		end := valueEnd(value, i)
		if end <= i || !f(key, value[i:end]) {
			return
		}
		if i = skipSpace(value, end); i < len(value) && value[i] == ',' {
			i = skipSpace(value, i+1)
		}
	}
}

// valueEnd returns the position after the value that starts at i.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return containerEnd(b, i)
	}
	for i < len(b) && !isSpace(b[i]) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ':' {
		i++
	}
	return i
}

func containerEnd(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return len(b)
}
