package text

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// toJSON is the filter as engines define it: Python's json.dumps, without escaping what is not ASCII unless asked to. The
// library's own sorts the members where it indents. Our name for it is toJSONName, for its filters cannot be replaced.
var toJSON = jinja.NewCallable(toJSONName, func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), nil
	}
	d := dump{item: ", ", key: ": ", indent: -1}
	if v, is := named["ensure_ascii"]; is && v.IsBool() {
		d.ascii = v.AsBool()
	}
	if v, is := named["indent"]; is && v.IsInt() {
		d.indent, d.item = int(v.AsInt()), ","
	}
	if v, is := named["separators"]; is && v.IsList() && v.AsList().Len() == 2 && v.AsList().Get(0).IsString() && v.AsList().Get(1).IsString() {
		d.item, d.key = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
	}
	d.value(args[0], 0)
	if d.deep {
		return jinja.Value{}, errDeep
	}
	return jinja.NewString(d.out.String()), nil
})

// mostDepth of what is written; a template can make a list that is in itself.
const mostDepth = 200

var errDeep = errors.New("tojson: nested too deeply")

const toJSONName = "python_json"

type dump struct {
	out       strings.Builder
	item, key string
	indent    int // -1: all in one line
	ascii     bool
	deep      bool // deeper than mostDepth: nothing more is written
}

func (d *dump) value(v jinja.Value, depth int) {
	switch {
	case d.deep || depth > mostDepth:
		d.deep = true
	case v.IsString():
		d.string(v.AsString())
	case v.IsBool():
		d.out.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		d.out.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		d.out.WriteString(pythonFloat(v.AsFloat()))
	case v.IsList():
		list := v.AsList()
		d.open('[', ']', list.Len(), depth, func(i int) { d.value(list.Get(i), depth+1) })
	case v.IsDict():
		dict := v.AsDict()
		d.open('{', '}', dict.Len(), depth, func(i int) {
			member, _ := dict.Get(dict.Keys[i])
			d.string(dict.Keys[i])
			d.out.WriteString(d.key)
			d.value(member, depth+1)
		})
	default:
		d.out.WriteString("null")
	}
}

// open writes n things between brackets.
func (d *dump) open(opening, closing byte, n, depth int, each func(i int)) {
	d.out.WriteByte(opening)
	for i := range n {
		if i > 0 {
			d.out.WriteString(d.item)
		}
		d.line(depth + 1)
		each(i)
	}
	if n > 0 {
		d.line(depth)
	}
	d.out.WriteByte(closing)
}

func (d *dump) line(depth int) {
	if d.indent >= 0 {
		d.out.WriteString("\n" + strings.Repeat(" ", d.indent*depth))
	}
}

func (d *dump) string(s string) {
	d.out.WriteByte('"')
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch short := strings.IndexByte("\"\\\n\r\t\b\f", s[i]); {
		case short >= 0:
			d.out.WriteByte('\\')
			d.out.WriteByte(`"\nrtbf`[short])
		case r < ' ' || d.ascii && r > '~' && r < 0x10000:
			d.unicode(uint32(r))
		case d.ascii && r >= 0x10000:
			d.unicode(0xd800 + uint32(r-0x10000)>>10)
			d.unicode(0xdc00 + uint32(r-0x10000)&0x3ff)
		default:
			d.out.WriteString(s[i : i+size])
		}
		i += size
	}
	d.out.WriteByte('"')
}

func (d *dump) unicode(n uint32) {
	const digits = "0123456789abcdef"
	d.out.WriteString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		d.out.WriteByte(digits[n>>shift&15])
	}
}

// pythonFloat writes a float as Python's repr does: with a point or an exponent, the latter from 1e16 on and below 1e-4.
func pythonFloat(f float64) string {
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
