package doctor

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// node is a value somewhere in Envoy's configuration as its admin page tells it. It is read without Envoy's types: a gateway
// has extensions that we do not know, and one unknown type would hide all the rest. What is not there is a node too.
type node struct{ v any }

func parseNode(data []byte) (node, error) {
	var v any
	err := json.Unmarshal(data, &v)
	return node{v}, err
}

// at follows names of members.
func (n node) at(names ...string) node {
	for _, name := range names {
		m, _ := n.v.(map[string]any)
		n = node{m[name]}
	}
	return n
}

func (n node) there() bool { return n.v != nil }

func (n node) list() (out []node) {
	l, _ := n.v.([]any)
	for _, v := range l {
		out = append(out, node{v})
	}
	return out
}

func (n node) members() (out map[string]node) {
	m, _ := n.v.(map[string]any)
	out = make(map[string]node, len(m))
	for k, v := range m {
		out[k] = node{v}
	}
	return out
}

func (n node) text() string {
	s, _ := n.v.(string)
	return s
}

func (n node) yes() bool {
	b, _ := n.v.(bool)
	return b
}

// number is also one of 64 bits, which JSON has as text.
func (n node) number(otherwise float64) float64 {
	switch v := n.v.(type) {
	case float64:
		return v
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return f
		}
	}
	return otherwise
}

// duration is one like "1.5s".
func (n node) duration(otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(n.text()); err == nil {
		return d
	}
	return otherwise
}

// isType says that a packed message is of this type, by the end of its name.
func (n node) isType(suffix string) bool { return strings.HasSuffix(n.at("@type").text(), suffix) }

// texts are those of a list.
func (n node) texts() (out []string) {
	for _, x := range n.list() {
		out = append(out, x.text())
	}
	return out
}

// each calls f for this node and all below it.
func (n node) each(f func(node)) {
	f(n)
	switch v := n.v.(type) {
	case map[string]any:
		for _, x := range v {
			node{x}.each(f)
		}
	case []any:
		for _, x := range v {
			node{x}.each(f)
		}
	}
}
