//go:build kube

package deploy

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Ports of ours, and two that nobody may reach: the engine's, and Envoy's admin page, which listen on loopback besides.
var ourPorts = []int32{8080, 8443, 8090, 10001, 10002, 9000, 9001, 9002, 9003, 9700, 9701, 9702, 8000, 9901, 5557, 5600, 22}

// strangers are what else there is around a spoke or a hub.
func strangers(own string) []place {
	at := func(namespace, name string) place {
		return place{name: name, namespace: namespace, labels: map[string]string{"app": name}}
	}
	return []place{
		at("envoy-gateway-system", "eg"), at(own, "neighbour"), at("elsewhere", "tenant"), at("monitoring", "prometheus"), at("gateways", "gateway"), at("operators", "operator"),
		{name: "liar", namespace: "elsewhere", labels: map[string]string{ // says that it is a door
			"app.kubernetes.io/name": "spokegate", "app.kubernetes.io/component": "door", "spokegate.io/spoke": "north"}},
		{name: "other-spoke's door", namespace: own, labels: map[string]string{
			"app.kubernetes.io/name": "spokegate", "app.kubernetes.io/component": "door", "spokegate.io/spoke": "other"}},
		{name: "internet", ip: net.ParseIP("203.0.113.7")},
	}
}

// callees are what pods may call outside of their own.
func callees(own string) map[string]place {
	at := func(namespace string, labels map[string]string) place {
		return place{name: namespace, namespace: namespace, labels: labels}
	}
	return map[string]place{
		"dns": at("kube-system", map[string]string{"k8s-app": "kube-dns"}), "redis": at("redis", nil), "kafka": at("kafka", nil),
		"otlp": at("monitoring", nil), "hub": at("spokegate-hub", nil), "postgres": at("databases", nil),
		"eg": at("envoy-gateway-system", nil), "vllm": at(own, map[string]string{"app": "vllm-llama"}), "internet": {name: "internet", ip: net.ParseIP("203.0.113.7")},
		"metadata": {name: "metadata", ip: net.ParseIP("169.254.169.254")},
	}
}

func (o objects) network(t *testing.T, without string) network {
	n := network{t, map[string][]networkingv1.NetworkPolicy{}}
	for _, p := range o.policies {
		if p.Name != without {
			n.policies[o.namespace] = append(n.policies[o.namespace], p)
		}
	}
	return n
}

func (o objects) pods() []place {
	var all []place
	for _, w := range o.workloads {
		all = append(all, place{name: w.name, namespace: o.namespace, labels: w.pod.Labels})
	}
	return all
}

func component(p place) string {
	if p.labels["app.kubernetes.io/name"] != "spokegate" || p.name == "liar" || p.name == "other-spoke's door" {
		return p.name
	}
	if c := p.labels["app.kubernetes.io/component"]; c == "worker" && p.labels["spokegate.io/role"] != "" {
		return p.labels["spokegate.io/role"]
	} else {
		return c
	}
}

// may is what docs/kubernetes.md promises of who reaches whom, told apart from how the chart says it.
func may(shape, from, to string, port int32) bool {
	worker := to == "worker" || to == "decode" || to == "prefill"
	callers := []string{"eg", "neighbour", "tenant", "prometheus", "gateway", "operator", "liar", "other-spoke's door", "internet"}
	monitored := shape == "spoke-hub-mtls" || shape == "spoke-pickers" || shape == "hub-sqlite" || shape == "hub-postgres"
	clients := int32(8443)
	if shape == "spoke-minimal" {
		clients = 8080
	}
	switch {
	case to == "door" && port == clients:
		return slices.Contains(callers, from)
	case to == "door" && port == 8090:
		return from == "worker" || from == "decode" || from == "prefill"
	case to == "door" && port == 10001, worker && port == 9001, to == "picker" && port == 10002, to == "hub" && port == 9702:
		return monitored && from == "prometheus"
	case worker && port == 9000:
		return from == "door" || from == "eg" && shape == "spoke-envoy-gateway" || from == "decode" && to == "prefill"
	case worker && port == 5600:
		return shape == "spoke-split" && (from == "decode" || from == "prefill")
	case worker && port == 9002:
		return from == "door" || from == "picker" || from == "eg" && shape == "spoke-envoy-gateway"
	case to == "picker" && port == 9002:
		return from == "gateway"
	case to == "hub" && port == 9701:
		return slices.Contains(callers, from)
	case to == "hub" && port == 9700:
		return from == "operator"
	}
	return false
}

// differences are the connections on which policies and promise do not agree.
func (o objects) differences(t *testing.T, without string) (wrong []string) {
	n := o.network(t, without)
	pods := o.pods()
	for _, to := range pods {
		for _, from := range append(strangers(o.namespace), pods...) {
			for _, port := range ourPorts {
				got, want := n.reaches(from, to, port, corev1.ProtocolTCP), may(o.shape, component(from), component(to), port)
				if got != want {
					wrong = append(wrong, fmt.Sprintf("%s → %s:%d reached %v, want %v", from.name, to.name, port, got, want))
				}
			}
		}
	}
	for name, to := range callees(o.namespace) {
		for _, from := range pods {
			for _, port := range []int32{53, 80, 443, 4317, 5432, 6379, 6443, 8000, 8090, 9092, 9093, 9701} {
				got, want := n.reaches(from, to, port, corev1.ProtocolTCP), mayCall(o.shape, component(from), name, port)
				if got != want {
					wrong = append(wrong, fmt.Sprintf("%s → %s:%d reached %v, want %v", from.name, name, port, got, want))
				}
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// mayCall is what pods may call outside.
func mayCall(shape, from, to string, port int32) bool {
	full := shape == "spoke-hub-mtls"
	switch {
	case to == "dns" && port == 53:
		return true
	case from == "picker" && (port == 443 || port == 6443):
		return true // the API server, whose address the chart does not know: picker's values can name it
	case from == "picker" && to == "vllm":
		return port == 8000
	case from == "worker" && to == "eg":
		return shape == "spoke-envoy-gateway" && port == 8090
	case from == "hub" && to == "postgres":
		return shape == "hub-postgres" && port == 5432
	case !full:
		return false
	case to == "redis":
		return from == "door" && port == 6379
	case to == "hub":
		return from == "door" && port == 9701
	case to == "kafka":
		return port == 9093
	case to == "otlp":
		return port == 4317 && from != "reconcile"
	}
	return false
}

// TestWhoReachesWhom: the policies let through what is promised and nothing else, at every port, from everybody.
func TestWhoReachesWhom(t *testing.T) {
	for _, o := range shapes(t) {
		t.Run(o.shape, func(t *testing.T) {
			if wrong := o.differences(t, ""); len(wrong) > 0 {
				t.Errorf("%d connections:\n%s", len(wrong), strings.Join(wrong, "\n"))
			}
			for _, p := range o.policies { // each is needed
				if p.Name != "spokegate-deny" && len(o.differences(t, p.Name)) == 0 {
					t.Errorf("without the policy %s nobody is reached otherwise: the test or the policy is of no use", p.Name)
				}
			}
		})
	}
}

// TestWhatNoPolicyNames is closed: a pod of the spoke that the chart does not know, say a kind that comes later.
func TestWhatNoPolicyNames(t *testing.T) {
	for _, o := range shapes(t) {
		if o.namespace != "spokegate" {
			continue
		}
		spoke := o.workloads[0].pod.Labels["spokegate.io/spoke"]
		pod := place{name: "new", namespace: o.namespace, labels: map[string]string{"app.kubernetes.io/name": "spokegate", "spokegate.io/spoke": spoke}}
		for _, open := range []bool{false, true} {
			without := ""
			if open {
				without = "spokegate-deny"
			}
			n := o.network(t, without)
			for _, s := range strangers(o.namespace) {
				if n.reaches(s, pod, 8000, corev1.ProtocolTCP) != open {
					t.Errorf("%s: %s reaches it: want %v", o.shape, s.name, open)
				}
			}
		}
	}
}
