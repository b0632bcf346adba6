package openai

// Scan reads a request body and refuses what is not clear.
func Scan(op Op, body []byte) (*Request, *Error) {
	return nil, InvalidBody("", "not implemented")
}

// Steering returns the top-level members present that steer an engine.
func (r *Request) Steering() []string { return nil }
