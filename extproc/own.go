package extproc

import "github.com/spokegate/spokegate/envoy"

// own is what stands in envoy.OwnNamespace.
type own struct {
	refused bool   // by a shim
	note    []byte // the last that has passed; envoy.NoteStream: none has, of a stream; empty: nobody notes this answer
}

func (o *own) member(b []byte) error {
	key, v, err := member(b)
	switch string(key) {
	case envoy.RefusedHeader:
		o.refused = true
	case envoy.NoteHeader:
		o.note = v.text
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
