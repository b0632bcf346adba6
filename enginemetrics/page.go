// Package enginemetrics reads what inference engines say of themselves: Prometheus text, in the names of each kind of engine.
//
// It promises that a page of any form and size costs bounded memory, that what is not asked for is passed over without being
// understood, and that what an engine does not say, or says in no number that makes sense, is unknown and not 0. It fetches
// nothing, and judges nothing.
package enginemetrics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// MaxPage bounds a page, in bytes.
const MaxPage = 8 << 20

// maxLine bounds a line that is asked for, in bytes.
const maxLine = 64 << 10

// Names are those of the samples that somebody wants. A histogram's samples have names of their own: x_sum, x_count.
type Names map[string]bool

// Page holds the samples that were wanted, by name, in their order.
type Page map[string][]Sample

// Sample is one line.
type Sample struct {
	Labels []Label
	Value  float64
}

// Label is a name and its value.
type Label struct{ Name, Value string }

var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// Read takes the samples of these names out of Prometheus text. An error says that the page broke off, is too large, or that a
// line which was wanted cannot be read.
func Read(r io.Reader, names Names) (Page, error) {
	limited := &io.LimitedReader{R: r, N: MaxPage + 1}
	lines := buffers.Get().(*bufio.Reader)
	defer buffers.Put(lines)
	lines.Reset(limited)
	defer lines.Reset(nil)
	page := Page{}
	for {
		line, err := lines.ReadSlice('\n')
		name, wanted := "", false
		if n := nameOf(line); len(n) > 0 && names[string(n)] {
			name, wanted = string(n), true
		}
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case limited.N == 0:
			return nil, fmt.Errorf("metrics of more than %d bytes", MaxPage)
		case wanted && long:
			return nil, fmt.Errorf("%s: a line of more than %d bytes", name, maxLine)
		case wanted:
			s, bad := parse(bytes.TrimLeft(line, " \t")[len(name):])
			if bad != nil {
				return nil, fmt.Errorf("%s: %w", name, bad)
			}
			page[name] = append(page[name], s)
		}
		if err != nil {
			return page, nil
		}
	}
}

// nameOf is the name that a line begins with; empty: it has none.
func nameOf(line []byte) []byte {
	line = bytes.TrimLeft(line, " \t")
	for i, c := range line {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return line[:i]
		}
	}
	return line
}

var (
	errLabels = errors.New("its labels cannot be read")
	errValue  = errors.New("its value is not a number")
)

// parse reads what follows a name: labels, a value, and a time that nobody needs.
func parse(rest []byte) (s Sample, err error) {
	rest = bytes.TrimLeft(rest, " \t")
	if len(rest) > 0 && rest[0] == '{' {
		if s.Labels, rest, err = parseLabels(rest[1:]); err != nil {
			return s, err
		}
	}
	fields := bytes.Fields(rest)
	if len(fields) != 1 && len(fields) != 2 {
		return s, errValue
	}
	if s.Value, err = strconv.ParseFloat(string(fields[0]), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return s, errValue
	}
	return s, nil
}

// parseLabels reads up to the closing brace, and gives what is behind it.
func parseLabels(rest []byte) (labels []Label, after []byte, err error) {
	for {
		rest = bytes.TrimLeft(rest, " \t")
		if len(rest) > 0 && rest[0] == '}' {
			return labels, rest[1:], nil
		}
		name := nameOf(rest)
		rest = bytes.TrimLeft(rest[len(name):], " \t")
		if len(name) == 0 || len(rest) == 0 || rest[0] != '=' {
			return nil, nil, errLabels
		}
		var value string
		if value, rest, err = quoted(bytes.TrimLeft(rest[1:], " \t")); err != nil {
			return nil, nil, err
		}
		labels = append(labels, Label{string(name), value})
		rest = bytes.TrimLeft(rest, " \t")
		if len(rest) > 0 && rest[0] == ',' {
			rest = rest[1:]
		} else if len(rest) == 0 || rest[0] != '}' {
			return nil, nil, errLabels
		}
	}
}

// quoted reads a label's value. Only a quote, a backslash and the end of a line are escaped.
func quoted(rest []byte) (value string, after []byte, err error) {
	if len(rest) == 0 || rest[0] != '"' {
		return "", nil, errLabels
	}
	var out []byte
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return string(out), rest[i+1:], nil
		case c != '\\':
			out = append(out, c)
		default:
			i++
			if i == len(rest) {
				return "", nil, errLabels
			}
			switch rest[i] {
			case 'n':
				out = append(out, '\n')
			case '"', '\\':
				out = append(out, rest[i])
			default:
				return "", nil, errLabels
			}
		}
	}
	return "", nil, errLabels
}
