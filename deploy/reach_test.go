//go:build kube

package deploy

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// place is a pod, or with an address of its own something outside the cluster.
type place struct {
	name      string
	namespace string
	labels    map[string]string
	ip        net.IP
}

// namespaceLabels are those that Kubernetes itself gives.
func (p place) namespaceLabels() labels.Set {
	return labels.Set{"kubernetes.io/metadata.name": p.namespace}
}

// network is what policies say, as Kubernetes defines it: a pod that no policy selects is open; one that is selected is open to what
// any of them allows. A connection wants both ends to allow it.
type network struct {
	t        *testing.T
	policies map[string][]networkingv1.NetworkPolicy // by namespace
}

func (n network) reaches(from, to place, port int32, protocol corev1.Protocol) bool {
	return n.allows(from, networkingv1.PolicyTypeEgress, to, port, protocol) && n.allows(to, networkingv1.PolicyTypeIngress, from, port, protocol)
}

// allows says whether what a place has for one direction lets other through, at a port of the called.
func (n network) allows(at place, direction networkingv1.PolicyType, other place, port int32, protocol corev1.Protocol) bool {
	if at.ip != nil {
		return true
	}
	selected := false
	for _, p := range n.policies[at.namespace] {
		if !has(p, direction) || !n.matches(&p.Spec.PodSelector, at.labels) {
			continue
		}
		selected = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				if n.peers(r.From, at.namespace, other) && ports(r.Ports, port, protocol) {
					return true
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if n.peers(r.To, at.namespace, other) && ports(r.Ports, port, protocol) {
				return true
			}
		}
	}
	return !selected
}

// has follows the default of policyTypes too.
func has(p networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return direction == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	for _, d := range p.Spec.PolicyTypes {
		if d == direction {
			return true
		}
	}
	return false
}

func (n network) peers(peers []networkingv1.NetworkPolicyPeer, own string, other place) bool {
	if len(peers) == 0 {
		return true
	}
	for _, p := range peers {
		if p.IPBlock != nil {
			if other.ip != nil && n.within(p.IPBlock, other.ip) {
				return true
			}
			continue
		}
		if other.ip != nil {
			continue
		}
		if p.NamespaceSelector == nil && other.namespace != own || p.NamespaceSelector != nil && !n.matches(p.NamespaceSelector, other.namespaceLabels()) {
			continue
		}
		if p.PodSelector == nil || n.matches(p.PodSelector, other.labels) {
			return true
		}
	}
	return false
}

func (n network) within(b *networkingv1.IPBlock, ip net.IP) bool {
	contains := func(cidr string) bool {
		_, block, err := net.ParseCIDR(cidr)
		if err != nil {
			n.t.Fatal(err)
		}
		return block.Contains(ip)
	}
	for _, e := range b.Except {
		if contains(e) {
			return false
		}
	}
	return contains(b.CIDR)
}

func (n network) matches(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		n.t.Fatal(err)
	}
	return selector.Matches(labels.Set(of))
}

// ports: names of ports are not used by our policies, so that they cannot be moved by a pod.
func ports(list []networkingv1.NetworkPolicyPort, port int32, protocol corev1.Protocol) bool {
	if len(list) == 0 {
		return true
	}
	for _, p := range list {
		if p.Protocol != nil && *p.Protocol != protocol || p.Protocol == nil && protocol != corev1.ProtocolTCP {
			continue
		}
		if p.Port == nil || p.Port.IntVal == port || p.EndPort != nil && p.Port.IntVal <= port && port <= *p.EndPort {
			return true
		}
	}
	return false
}
