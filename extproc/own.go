package extproc

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spokegate/spokegate/envoy"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/wire"
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
func (e *logEntry) metadata(b []byte) (err error) {
	var key []byte
	var said own
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == entryKey:
			key = f.Bytes
		case f.Number == entryValue:
			err = each(f.Bytes, structFields, said.member)
		}
	}
	if string(key) == envoy.OwnNamespace {
		e.own = said
	}
	if err == nil {
		err = f.Err()
	}
	return err
}
