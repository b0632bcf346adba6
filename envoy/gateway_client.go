package envoy

import (
	"regexp"
	"strings"
	"time"
)

// clientTraffic is the side of clients: hygiene, limits and patience, as listener and manager have them. Envoy Gateway bounds
// neither the size nor the number of headers below Envoy's own 60 KiB and 100.
func (g Gateway) clientTraffic() Object {
	d := g.Door
	return g.policy("ClientTrafficPolicy", Object{
		"headers": Object{
			"withUnderscoresAction": "RejectRequest",
			"requestID":             "Generate",
			"earlyRequestHeaders":   earlyHeaders(),
			"lateResponseHeaders": Object{
				// Set first, then removed: in this order whatever stands here.
				"set":           list{named(RequestIDHeader, "%REQ("+RequestIDHeader+")%"), named(AnthropicIDHeader, "%REQ("+RequestIDHeader+")%")},
				"removeOnMatch": owned(strings.TrimPrefix(ExplainHeader, ownPrefix)),
			},
		},
		"path": Object{"escapedSlashesAction": "RejectRequest"},
		"connection": Object{
			"bufferLimit":     max(d.HeadCheckAbove, leastBuffer),
			"connectionLimit": Object{"value": d.MaxConnections},
		},
		"http2": Object{
			"maxConcurrentStreams": d.MaxStreams, "initialStreamWindowSize": clientStreamWindow, "initialConnectionWindowSize": clientWindow,
			"connectionKeepalive": Object{"interval": gatewayTime(clientPing), "timeout": gatewayTime(clientPong)},
		},
		"timeout": Object{
			"tcp": Object{"connectionInspectionTimeout": gatewayTime(d.HeadersTimeout)},
			"http": Object{
				"requestHeadersReceivedTimeout": gatewayTime(d.HeadersTimeout), "requestReceivedTimeout": gatewayTime(d.RequestTimeout),
				"streamIdleTimeout": gatewayTime(d.IdleTimeout), "idleTimeout": gatewayTime(d.ConnectionIdle),
			},
		},
	})
}

// earlyHeaders are as earlyMutation. Envoy Gateway sets before it removes, so what keeps the client's request id is not removed
// again; a client that sends that header itself has said its request id there.
func earlyHeaders() Object {
	return Object{
		"set":           list{named(ClientRequestIDHeader, "%REQ("+RequestIDHeader+")%")},
		"remove":        list{RequestIDHeader},
		"removeOnMatch": owned(strings.TrimPrefix(ExplainHeader, ownPrefix), strings.TrimPrefix(ClientRequestIDHeader, ownPrefix)),
	}
}

// owned matches the headers that only the door writes, but for those of ownPrefix that go on with one of the words.
func owned(but ...string) list {
	var ms list
	for _, p := range ownedPrefixes {
		m := Object{"type": "Prefix", "value": p}
		if p == ownPrefix {
			m = Object{"type": "RegularExpression", "value": regexp.QuoteMeta(p) + allBut(but...)}
		}
		ms = append(ms, m)
	}
	return ms
}

func named(name, value string) Object { return Object{"name": name, "value": value} }

// gatewayTime is a duration as Gateway API writes them, in milliseconds at the finest.
func gatewayTime(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return plain(d/time.Hour) + "h"
	case d%time.Minute == 0:
		return plain(d/time.Minute) + "m"
	case d%time.Second == 0:
		return plain(d/time.Second) + "s"
	}
	return plain(d/time.Millisecond) + "ms"
}
