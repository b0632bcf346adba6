package openai

import (
	"fmt"
	"strconv"
)

// field reads the members that a door acts on.
func (t *taker) field(name string, v Span) *Error {
	r := t.r
	switch name {
	case "model":
		return t.model(v)
	case "stream":
		return t.boolean(name, v, &r.Stream)
	case "stream_options":
		return t.streamOptions(v)
	case "n":
		return t.choices(name, v, &r.n)
	case "best_of":
		return t.choices(name, v, &r.bestOf)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		return t.limit(name, v)
	case "background":
		return t.background(v)
	case "chat_template_kwargs":
		return t.templateArguments(v)
	}
	return nil
}

// templateArguments refuses those that are no arguments of the template, but of the function that fills it in: engines hand them
// over together, and so let a client bring a template of its own, which is code, or an answer that makes the engine fail.
func (t *taker) templateArguments(v Span) *Error {
	if t.b[v.Start] != '{' {
		return nil
	}
	inner := &scanner{b: t.b[:v.End], i: v.Start}
	return inner.members(2, 0, func(key, _ Span) *Error {
		if name, _ := inner.text(key); name == "chat_template" || name == "tokenize" {
			return t.failAt(key.Start, "chat_template_kwargs", "chat_template_kwargs must not have '"+name+"'")
		}
		return nil
	})
}

func (t *taker) model(v Span) *Error {
	if t.b[v.Start] != '"' {
		return t.failAt(v.Start, "model", "model must be a string")
	}
	model, ok := t.text(v)
	if !ok || model == "" {
		return t.failAt(v.Start, "model", fmt.Sprintf("model must have 1 to %d bytes and no lone surrogate", MaxName))
	}
	t.r.Model = model
	return nil
}

// boolean reads true or false into to, and leaves it alone at null.
func (t *taker) boolean(name string, v Span, to *bool) *Error {
	switch string(t.b[v.Start:v.End]) {
	case "true":
		*to = true
	case "false":
		*to = false
	case "null":
	default:
		return t.failAt(v.Start, name, name+" must be true or false")
	}
	return nil
}

func (t *taker) background(v Span) *Error {
	var background bool
	if err := t.boolean("background", v, &background); err != nil {
		return err
	}
	if background {
		return t.failAt(v.Start, "background", "background is not supported")
	}
	return nil
}

func (t *taker) choices(name string, v Span, to *int64) *Error {
	n, given, err := t.integer(name, v)
	if err != nil || !given {
		return err
	}
	if n < 1 || n > MaxN {
		return t.failAt(v.Start, name, fmt.Sprintf("%s must be 1 to %d", name, MaxN))
	}
	*to = n
	return nil
}

// limit reads a limit of generated tokens. One of another operation is read too: an engine may be strict about it.
func (t *taker) limit(name string, v Span) *Error {
	n, given, err := t.integer(name, v)
	if err == nil && given && t.r.Op.limits(name) {
		t.r.limit, t.r.limited = max(t.r.limit, n), true
	}
	return err
}

// integer reads digits alone: 1e3, 3.0 and -0 are numbers that parsers disagree about.
func (t *taker) integer(name string, v Span) (n int64, given bool, err *Error) {
	raw := t.b[v.Start:v.End]
	if string(raw) == "null" {
		return 0, false, nil
	}
	u, bad := strconv.ParseUint(string(raw[:min(len(raw), 20)]), 10, 63)
	if bad != nil || len(raw) > 20 {
		return 0, false, t.failAt(v.Start, name, name+" must be a whole number, written as digits")
	}
	return int64(u), true, nil
}

func (t *taker) streamOptions(v Span) *Error {
	switch raw := t.b[v.Start:v.End]; {
	case string(raw) == "null":
		return nil
	case raw[0] != '{':
		return t.failAt(v.Start, "stream_options", "stream_options must be an object")
	}
	var seen names
	inner := &scanner{b: t.b[:v.End], i: v.Start}
	return inner.members(2, 0, func(key, value Span) *Error {
		name, err := seen.add(inner, key)
		if err != nil {
			return err
		}
		return t.streamOption(name, key, value)
	})
}

func (t *taker) streamOption(name string, key, v Span) *Error {
	ignored := false
	switch {
	case t.b[v.Start] == 'n' && (name == "include_usage" || name == "include_obfuscation"):
		return t.failAt(v.Start, "stream_options."+name, name+" must be true or false")
	case name == "include_usage":
		return t.boolean(name, v, &t.r.IncludeUsage)
	case name == "include_obfuscation":
		return t.boolean(name, v, &ignored)
	}
	return t.failAt(key.Start, "stream_options", "stream_options has an unknown key '"+echo(name)+"'")
}
