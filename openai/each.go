package openai

// Each calls f for every member of an object or element of an array, in order, until f returns false. key is the member's name as written, with its
// quotes (decode it with [Unquote]), nil in arrays; v is the value as written, without white space around it. Any other value has no parts.
// value must be JSON that [Scan] accepted.
func Each(value []byte, f func(key, v []byte) bool) {}

// Unquote appends the decoded form of raw, a JSON string as written, with its quotes. A lone surrogate becomes U+FFFD.
func Unquote(dst, raw []byte) []byte { return dst }
