package text

import (
	"regexp"
	"strings"

	"github.com/ardanlabs/jinja"
)

// compile reads a chat template as engines set Jinja up: trim_blocks and lstrip_blocks, no newline at the end.
//
// What that makes of white space is done here, by Jinja's own rules, and each piece of text is given to the library as an
// expression: the library has rules of its own for white space, and they lose some.
func compile(source string) (*jinja.Template, error) { return jinja.Compile(literal(source)) }

// literal writes a template anew, with all its text in expressions and no white space control.
func literal(source string) string {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n")
	l := literals{rest: source, fresh: true}
	for l.rest != "" {
		l.step()
	}
	return l.out.String()
}

type literals struct {
	out   strings.Builder
	rest  string
	fresh bool // at the beginning of a line
	strip bool // the tag before ended with "-": white space goes
}

// step takes the text up to the next tag, and the tag.
func (l *literals) step() {
	at, open := nextTag(l.rest)
	text := l.rest[:at]
	if l.strip {
		text = strings.TrimLeft(text, space)
	}
	if open == "" {
		l.text(text)
		l.rest = ""
		return
	}
	body := l.rest[at+2:]
	var mark byte
	if body != "" && (body[0] == '-' || body[0] == '+') {
		mark, body = body[0], body[1:]
	}
	switch {
	case mark == '-':
		text = strings.TrimRight(text, space)
	case mark == 0 && open != "{{":
		text = l.lineStart(text)
	}
	l.text(text)
	l.tag(open, body)
}

// space is what Python's \s matches in ASCII; templates have no other.
const space = " \t\n\r\f\v"

// lineStart takes white space away that is all there is before a tag in its line.
func (l *literals) lineStart(text string) string {
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || l.fresh) && strings.Trim(text[line:], space) == "" {
		return text[:line]
	}
	return text
}

func (l *literals) text(text string) {
	if text == "" {
		return
	}
	l.out.WriteString(`{{ "` + quoted.Replace(text) + `" }}`)
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)

// tag takes a tag to its end. One that has none is left for the library to complain of.
func (l *literals) tag(open, body string) {
	closing := map[string]string{"{{": "}}", "{%": "%}", "{#": "#}"}[open]
	end := tagEnd(body, closing)
	if end < 0 {
		l.out.WriteString(open + body)
		l.rest = ""
		return
	}
	inside := body[:end]
	l.rest = body[end+2:]
	l.fresh, l.strip = false, false
	switch {
	case strings.HasSuffix(inside, "-"):
		inside, l.strip = inside[:len(inside)-1], true
	case strings.HasSuffix(inside, "+") && open != "{{":
		inside = inside[:len(inside)-1]
	case open != "{{" && strings.HasPrefix(l.rest, "\n"):
		l.rest, l.fresh = l.rest[1:], true
	}
	switch {
	case open == "{#":
	case open == "{%" && strings.TrimSpace(inside) == "raw":
		l.raw()
	default:
		l.out.WriteString(open + " " + jsonFilter.ReplaceAllString(inside, "|"+toJSONName) + " " + closing)
		if open == "{%" {
			l.count(inside)
		}
	}
}

// count puts a call behind the beginning of a loop or a macro: see budget.
func (l *literals) count(inside string) {
	words := strings.Fields(inside)
	switch {
	case len(words) == 0:
	case words[0] == "for":
		l.out.WriteString("{{ " + turnName + "() }}")
	case words[0] == "macro":
		l.out.WriteString("{{ " + callName + "() }}")
	}
}

var jsonFilter = regexp.MustCompile(`\|\s*tojson\b`)

// raw takes all up to endraw as text.
func (l *literals) raw() {
	for at := 0; ; at += 2 {
		i := strings.Index(l.rest[at:], "{%")
		if i < 0 {
			return
		}
		at += i
		end := strings.Index(l.rest[at:], "%}")
		if end < 0 {
			return
		}
		inside := l.rest[at+2 : at+end]
		if strings.Trim(inside, space+"-+") != "endraw" {
			continue
		}
		text := l.rest[:at]
		if l.strip {
			text = strings.TrimLeft(text, space)
		}
		if strings.HasPrefix(inside, "-") {
			text = strings.TrimRight(text, space)
		} else if !strings.HasPrefix(inside, "+") {
			text = l.lineStart(text)
		}
		l.text(text)
		l.rest = l.rest[at+end+2:]
		l.strip = strings.HasSuffix(inside, "-")
		l.fresh = !l.strip && !strings.HasSuffix(inside, "+") && strings.HasPrefix(l.rest, "\n")
		if l.fresh {
			l.rest = l.rest[1:]
		}
		return
	}
}

// nextTag finds where the next tag begins, and with what.
func nextTag(s string) (at int, open string) {
	for at = 0; at+1 < len(s); at++ {
		if s[at] == '{' && (s[at+1] == '{' || s[at+1] == '%' || s[at+1] == '#') {
			return at, s[at : at+2]
		}
	}
	return len(s), ""
}

// tagEnd finds where a tag is closed, outside of strings and braces; -1: nowhere.
func tagEnd(s, closing string) int {
	if closing == "#}" {
		return strings.Index(s, closing)
	}
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case depth == 0 && strings.HasPrefix(s[i:], closing):
			return i
		case c == '{' || c == '[' || c == '(':
			depth++
		case c == '}' || c == ']' || c == ')':
			depth--
		}
	}
	return -1
}
