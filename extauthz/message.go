package extauthz

import (
	"errors"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spokegate/spokegate/wire"
)

// Numbers of the fields that are read, in envoy/service/auth/v3 and envoy/config/core/v3.
const (
	checkAttributes   = 1
	attributesSource  = 1
	attributesRequest = 4
	peerAddress       = 1
	addressSocket     = 1 // of a oneof with the next two
	addressPipe       = 2
	addressInternal   = 3
	socketAddress     = 2
	requestHTTP       = 2
	httpID            = 1
	httpMethod        = 2
	httpHeaders       = 3
	httpPath          = 4
	httpHost          = 5
	httpScheme        = 6
	httpQuery         = 7
	httpFragment      = 8
	httpProtocol      = 10
	httpBody          = 11
	httpRawBody       = 12
	entryKey          = 1
	entryValue        = 2
)

var errUTF8 = errors.New("a string that is not UTF-8")

// parse reads the wire form of a CheckRequest as protobuf demands: a message that comes again is merged, of anything else
// the last one counts, and what is not known is skipped, here unread. The question's body is a slice of b; its strings are
// copies.
func parse(b []byte) (question, error) {
	q := question{contentLength: -1}
	err := only(b, checkAttributes, q.readAttribute)
	if len(q.body) == 0 {
		q.body = q.text
	}
	q.text = nil
	return q, err
}

// each calls take for every field that has a length. All that is read here has one.
func each(message []byte, take func(protowire.Number, []byte) error) error {
	f := wire.Over(message)
	for f.Next() {
		if f.Type != protowire.BytesType {
			continue
		}
		if err := take(f.Number, f.Bytes); err != nil {
			return err
		}
	}
	return f.Err()
}

func (q *question) readAttribute(n protowire.Number, v []byte) error {
	switch n {
	case attributesSource:
		return only(v, peerAddress, q.readAddress)
	case attributesRequest:
		return only(v, requestHTTP, q.readHTTP)
	}
	return nil
}

// only goes into one field of a message.
func only(message []byte, number protowire.Number, take func(protowire.Number, []byte) error) error {
	return each(message, func(n protowire.Number, v []byte) error {
		if n != number {
			return nil
		}
		return each(v, take)
	})
}

// readAddress keeps the IP of a socket; who comes from elsewhere has none.
func (q *question) readAddress(n protowire.Number, v []byte) error {
	switch n {
	case addressSocket:
		return each(v, func(n protowire.Number, v []byte) error {
			if n != socketAddress {
				return nil
			}
			return text(&q.source, v)
		})
	case addressPipe, addressInternal:
		q.source = ""
	}
	return nil
}

func (q *question) readHTTP(n protowire.Number, v []byte) error {
	switch n {
	case httpMethod:
		return text(&q.method, v)
	case httpHeaders:
		return q.readHeader(v)
	case httpPath:
		return text(&q.target, v)
	case httpHost:
		return text(&q.host, v)
	case httpRawBody:
		q.body = v
	case httpID, httpScheme, httpQuery, httpFragment, httpProtocol, httpBody:
		if !utf8.Valid(v) {
			return errUTF8
		}
		if n == httpBody {
			q.text = v
		}
	}
	return nil
}

// readHeader reads one entry of the map of headers.
func (q *question) readHeader(entry []byte) error {
	var key, value []byte
	err := each(entry, func(n protowire.Number, v []byte) error {
		switch n {
		case entryKey:
			key = v
		case entryValue:
			value = v
		default:
			return nil
		}
		if !utf8.Valid(v) {
			return errUTF8
		}
		return nil
	})
	if err != nil {
		return err
	}
	if string(key) == "content-length" {
		q.contentLength = length(string(value))
	}
	for i := range read {
		if read[i].name == string(key) {
			*read[i].to(q) = common(value)
		}
	}
	return nil
}

// length reads a content-length; -1: none that can be read.
func length(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// text keeps a copy of a string.
func text(to *string, v []byte) error {
	if !utf8.Valid(v) {
		return errUTF8
	}
	*to = common(v)
	return nil
}

// common is string(v), without a copy for what nearly every request says.
func common(v []byte) string {
	switch string(v) {
	case "POST":
		return "POST"
	case "application/json":
		return "application/json"
	case "/v1/chat/completions":
		return "/v1/chat/completions"
	}
	return string(v)
}
