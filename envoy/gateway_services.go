package envoy

import (
	"strconv"
	"time"
)

func plain[T ~int64 | ~int](n T) string { return strconv.FormatInt(int64(n), 10) }

// doorBackend is the door process, at its socket.
func (g Gateway) doorBackend() Object {
	return g.object(envoyGroup+"/v1alpha1", "Backend", g.doorName(), Object{
		"endpoints": list{Object{"unix": Object{"path": g.Door.DoorSocket}}},
	})
}

func (g Gateway) doorName() string { return g.Name + "-door" }

// toDoor is a way to the door process, as socketCluster is.
func (g Gateway) toDoor(pinged bool) Object {
	settings := Object{
		"circuitBreaker": gatewayBreakers(),
		"connection":     Object{"bufferLimit": connectionBuffer},
		"timeout":        Object{"tcp": Object{"connectTimeout": gatewayTime(doorConnect)}},
	}
	http2 := Object{"initialStreamWindowSize": doorStreamWindow, "initialConnectionWindowSize": doorWindow}
	if pinged {
		// Envoy Gateway takes no timeout that is as long as the interval: the patience is ours, and pings are rarer.
		http2["connectionKeepalive"] = Object{"interval": gatewayTime((pingPatience + 1) * g.Door.Keepalive), "timeout": gatewayTime(pingPatience * g.Door.Keepalive)}
	}
	settings["http2"] = http2
	return Object{
		"backendRefs":     list{Object{"group": envoyGroup, "kind": "Backend", "name": g.doorName()}},
		"backendSettings": settings,
	}
}

func gatewayBreakers() Object {
	return Object{"maxConnections": unlimited, "maxPendingRequests": unlimited, "maxParallelRequests": unlimited, "maxParallelRetries": unlimited}
}

// security is admission: every request with its whole body, closed to all when the door process is away.
func (g Gateway) security() Object {
	return g.policy("SecurityPolicy", Object{"extAuth": Object{
		"grpc":           g.toDoor(true),
		"bodyToExtAuth":  Object{"maxRequestBytes": g.Door.BodyLimit},
		"timeout":        gatewayTime(g.Door.CheckTimeout),
		"failOpen":       false,
		"recomputeRoute": true, // the route follows EndpointHeader, which the answer brings
		"statusOnError":  503,
	}})
}

// metering is as meter: told of answers, and not waited for.
func (g Gateway) metering() Object {
	meter := g.toDoor(true)
	meter["shadowMode"], meter["failOpen"] = true, true
	meter["processingMode"] = Object{"response": Object{"body": "Streamed", "attributes": list{IDAttribute, PathAttribute, UpstreamAttribute}}}
	return g.policy("EnvoyExtensionPolicy", Object{"extProc": list{meter}})
}

// envoyProxy has Envoy tell the door process how each request ended, and the door process stand beside each Envoy.
func (g Gateway) envoyProxy() Object {
	log := g.toDoor(false)
	log["logName"], log["type"] = AccessLogName, "HTTP"
	spec := Object{
		"telemetry": Object{"accessLog": Object{"settings": list{Object{
			"type": "Route", "sinks": list{Object{"type": "ALS", "als": log}},
		}}}},
		// Long answers have time to end.
		"shutdown": Object{"drainTimeout": gatewayTime(gatewayDrain)},
	}
	if g.Door.Concurrency > 0 {
		spec["concurrency"] = g.Door.Concurrency
	}
	spec["provider"] = Object{"type": "Kubernetes", "kubernetes": Object{"envoyDeployment": g.deployment()}}
	if g.HostEnvoy != "" {
		spec["provider"] = Object{"type": "Host", "host": Object{"envoyVersion": g.HostEnvoy}}
	}
	return g.object(envoyGroup+"/v1alpha1", "EnvoyProxy", g.Name, spec)
}

const gatewayDrain = 5 * time.Minute
