package extproc

import (
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spokegate/spokegate/wire"
)

// logEntry is what is read of an HTTPAccessLogEntry. Its bytes are slices of what it was read from.
type logEntry struct {
	id, details     []byte
	status          uint32
	sent, received  uint64 // body bytes: to the client, from it
	attempts        uint32
	kind            uint64 // why it was written
	flags           uint64 // a bit for each number of a field of ResponseFlags
	tried           bool   // an upstream is named, of whatever kind
	address         address
	path            []byte // with its query
	own             own
	start           span // since 1970
	first, last     span // from the start to the first and the last byte to the client
	firstAt, lastAt bool // whether they are told
}

// span is a Duration or a Timestamp.
type span struct {
	seconds int64
	nanos   int32
}

// address is a SocketAddress.
type address struct {
	is   bool
	host []byte
	port uint32
}

// Numbers of the fields that are read, in envoy/service/accesslog/v3, envoy/data/accesslog/v3, envoy/config/core/v3 and
// google/protobuf.
const (
	logHTTP, logTCP    = 2, 3
	logEntries         = 1
	entryCommon        = 1
	entryRequest       = 3
	entryResponse      = 4
	commonStart        = 5
	commonFirst        = 11
	commonLast         = 12
	commonUpstream     = 13
	commonFlags        = 16
	commonMetadata     = 17
	commonAttempts     = 24
	commonKind         = 33
	kindUnset, kindEnd = 0, 6 // of AccessLogType: DownstreamEnd
	requestPath        = 5
	requestID          = 9
	requestBodyBytes   = 12
	responseCode       = 1
	responseBodyBytes  = 3
	responseDetails    = 6
	addressSocket      = 1
	addressOthersMost  = 3 // 2 and 3 are of other kinds
	socketHost         = 2
	socketPort         = 3
	socketNamedPort    = 4
	filterMetadata     = 1
	wrapped            = 1
	spanSeconds        = 1
	spanNanos          = 2
	flagUnhealthy      = 2
	flagRequestTimeout = 3
	flagLocalReset     = 4
	flagRemoteReset    = 5
	flagNotConnected   = 6
	flagTerminated     = 7
	flagOverflow       = 8
	flagNoRoute        = 9
	flagClientClosed   = 15
	flagRetryLimit     = 16
	flagIdleTimeout    = 17
	flagDuration       = 23
	flagProtocolError  = 24
	flagNoCluster      = 25
	flagClientReset    = 28
)

// httpEntries gives the entries of a StreamAccessLogsMessage, which is read as [parse] reads: as protobuf demands, and what
// is not read here is not looked into.
func httpEntries(b []byte) (entries [][]byte, err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == logHTTP:
			err = each(f.Bytes, logEntries, func(e []byte) error { entries = append(entries, e); return nil })
		case f.Number == logTCP:
			entries = nil // the other one of a oneof
		}
	}
	if err == nil {
		err = f.Err()
	}
	return entries, err
}

func parseEntry(b []byte) (e logEntry, err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == entryCommon:
			err = e.common(f.Bytes)
		case f.Number == entryRequest:
			err = e.request(f.Bytes)
		case f.Number == entryResponse:
			err = e.response(f.Bytes)
		}
	}
	if err == nil {
		err = f.Err()
	}
	return e, err
}

func (e *logEntry) common(b []byte) (err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type == protowire.VarintType && f.Number == commonAttempts:
			e.attempts = uint32(f.Varint)
		case f.Type == protowire.VarintType && f.Number == commonKind:
			e.kind = f.Varint
		case f.Type != protowire.BytesType:
		case f.Number == commonStart:
			err = e.start.read(f.Bytes)
		case f.Number == commonFirst:
			e.firstAt, err = true, e.first.read(f.Bytes)
		case f.Number == commonLast:
			e.lastAt, err = true, e.last.read(f.Bytes)
		case f.Number == commonUpstream:
			e.tried, err = true, e.address.read(f.Bytes)
		case f.Number == commonFlags:
			err = e.flag(f.Bytes)
		case f.Number == commonMetadata:
			err = each(f.Bytes, filterMetadata, e.metadata)
		}
	}
	if err == nil {
		err = f.Err()
	}
	return err
}

func (e *logEntry) flag(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		if f.Type == protowire.VarintType && f.Number < 64 {
			e.flags &^= 1 << f.Number
			if f.Varint != 0 {
				e.flags |= 1 << f.Number
			}
		}
	}
	return f.Err()
}

// has says whether one of the flags is set.
func (e *logEntry) has(flags ...protowire.Number) bool {
	for _, n := range flags {
		if e.flags&(1<<n) != 0 {
			return true
		}
	}
	return false
}

func (e *logEntry) request(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Number == requestID && f.Type == protowire.BytesType:
			e.id = f.Bytes
		case f.Number == requestPath && f.Type == protowire.BytesType:
			e.path = f.Bytes
		case f.Number == requestBodyBytes && f.Type == protowire.VarintType:
			e.received = f.Varint
		}
	}
	return f.Err()
}

func (e *logEntry) response(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Number == responseCode && f.Type == protowire.BytesType:
			code := wire.Over(f.Bytes)
			for code.Next() {
				if code.Number == wrapped && code.Type == protowire.VarintType {
					e.status = uint32(code.Varint)
				}
			}
			if code.Err() != nil {
				return code.Err()
			}
		case f.Number == responseBodyBytes && f.Type == protowire.VarintType:
			e.sent = f.Varint
		case f.Number == responseDetails && f.Type == protowire.BytesType:
			e.details = f.Bytes
		}
	}
	return f.Err()
}

func (s *span) read(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Type != protowire.VarintType:
		case f.Number == spanSeconds:
			s.seconds = int64(f.Varint)
		case f.Number == spanNanos:
			s.nanos = int32(f.Varint)
		}
	}
	return f.Err()
}

func (s span) time() time.Time { return time.Unix(s.seconds, int64(s.nanos)).UTC() }

func (s span) duration() time.Duration {
	return (&durationpb.Duration{Seconds: s.seconds, Nanos: s.nanos}).AsDuration() // which knows the bounds
}

// read takes an Address.
func (a *address) read(b []byte) (err error) {
	f := wire.Over(b)
	for f.Next() && err == nil {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == addressSocket:
			a.is, err = true, a.socket(f.Bytes)
		case f.Number <= addressOthersMost:
			*a = address{}
		}
	}
	if err == nil {
		err = f.Err()
	}
	return err
}

func (a *address) socket(b []byte) error {
	f := wire.Over(b)
	for f.Next() {
		switch {
		case f.Number == socketHost && f.Type == protowire.BytesType:
			a.host = f.Bytes
		case f.Number == socketPort && f.Type == protowire.VarintType:
			a.port = uint32(f.Varint)
		case f.Number == socketNamedPort && f.Type == protowire.BytesType:
			a.port = 0
		}
	}
	return f.Err()
}

// String is host:port, or nothing where the address is of another kind.
func (a *address) String() string {
	if !a.is {
		return ""
	}
	return net.JoinHostPort(string(a.host), strconv.Itoa(int(a.port)))
}
