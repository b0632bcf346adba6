package extproc

import (
	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
)

// own is what stands in envoy.OwnNamespace.
type own struct {
	refused bool   // by a shim
	whole   []byte // envoy.WholeHeader
	unread  bool   // Envoy could not read the answer
	usage   [usageMembers]value
}

// usageMembers are what Envoy reads of a whole answer, in the order of openai.UsagePaths.
const usageMembers = 10

func (o *own) member(b []byte) error {
	key, v, err := member(b)
	switch string(key) {
	case envoy.RefusedHeader:
		o.refused = true
	case envoy.WholeHeader:
		o.whole = v.text
	case envoy.UnreadKey:
		o.unread = true
	default:
		for i, path := range openai.UsagePaths() {
			if string(key) == path {
				o.usage[i] = v
			}
		}
	}
	return err
}

// metadata takes one entry of the map: the key is whose they are, the value a Struct.
func (e *logEntry) metadata(b []byte) error {
	var said own
	key, err := mapEntry(b, func(b []byte) error { return each(b, structFields, said.member) })
	if string(key) == envoy.OwnNamespace {
		e.own = said
	}
	return err
}
