package rig

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// services is what kube-proxy and the cluster's DNS do: connections to a service's address go to one of its ready pods in turn, and
// names become addresses.
type services struct {
	n       *Node
	dns     net.PacketConn
	proxies map[string]*proxy // by address and port
	done    sync.WaitGroup

	mu    sync.Mutex
	names map[string][]net.IP // of services and of pods behind headless ones
}

func newServices(n *Node) (*services, error) {
	s := &services{n: n, proxies: map[string]*proxy{}, names: map[string][]net.IP{}}
	var err error
	if s.dns, err = net.ListenPacket("udp", net.JoinHostPort(nodeAddress, "53")); err != nil {
		return nil, err
	}
	s.done.Add(1)
	go s.serveNames()
	// The API server's own service leads to it.
	if err := s.proxy(apiService, 443, []string{fmt.Sprintf("127.0.0.1:%d", n.c.port)}); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *services) close() {
	_ = s.dns.Close()
	for _, p := range s.proxies {
		p.close()
	}
	s.done.Wait()
}

// update takes over what services and pods there are.
func (s *services) update(all []corev1.Service, pods []corev1.Pod) {
	names := map[string][]net.IP{}
	for i := range all {
		svc := &all[i]
		if svc.Namespace == "default" && svc.Name == "kubernetes" {
			names["kubernetes.default.svc."+domain] = []net.IP{net.ParseIP(apiService)}
			continue
		}
		behind := endpoints(svc, pods)
		name := svc.Name + "." + svc.Namespace + ".svc." + domain
		if svc.Spec.ClusterIP != corev1.ClusterIPNone {
			names[name] = []net.IP{net.ParseIP(svc.Spec.ClusterIP)}
			for _, port := range svc.Spec.Ports {
				if err := s.proxy(svc.Spec.ClusterIP, int(port.Port), addresses(behind, port)); err != nil {
					s.n.logf("service %s: %v", svc.Name, err)
				}
			}
			continue
		}
		names[name] = []net.IP{} // there, without addresses
		for _, p := range behind {
			addr := net.ParseIP(p.Status.PodIP)
			names[name] = append(names[name], addr)
			if p.Spec.Subdomain == svc.Name {
				names[cmp.Or(p.Spec.Hostname, p.Name)+"."+name] = []net.IP{addr}
			}
		}
	}
	s.mu.Lock()
	s.names = names
	s.mu.Unlock()
}

// endpoints are the pods that a service leads to: ready ones that are not about to end, or all.
func endpoints(svc *corev1.Service, pods []corev1.Pod) []*corev1.Pod {
	var behind []*corev1.Pod
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for i := range pods {
		p := &pods[i]
		if len(svc.Spec.Selector) == 0 || p.Namespace != svc.Namespace || p.Status.PodIP == "" || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if svc.Spec.PublishNotReadyAddresses || Ready(p) && p.DeletionTimestamp == nil {
			behind = append(behind, p)
		}
	}
	return behind
}

// Ready says whether a pod has the condition Ready.
func Ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func addresses(pods []*corev1.Pod, port corev1.ServicePort) []string {
	var to []string
	for _, p := range pods {
		if n := targetPort(p, port); n != 0 {
			to = append(to, net.JoinHostPort(p.Status.PodIP, fmt.Sprint(n)))
		}
	}
	return to
}

func targetPort(p *corev1.Pod, port corev1.ServicePort) int32 {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntVal, port.Port)
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, q := range c.Ports {
			if q.Name == port.TargetPort.StrVal {
				return q.ContainerPort
			}
		}
	}
	return 0
}

// proxy has a service's port lead to these addresses from now on.
func (s *services) proxy(addr string, port int, to []string) error {
	at := net.JoinHostPort(addr, fmt.Sprint(port))
	p := s.proxies[at]
	if p == nil {
		if err := ip("addr", "replace", addr+"/32", "dev", "lo"); err != nil {
			return err
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		p = &proxy{listener: l}
		p.ctx, p.stop = context.WithCancel(context.Background())
		s.proxies[at] = p
		s.done.Add(1)
		go func() { defer s.done.Done(); p.serve() }()
	}
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	return nil
}

// proxy carries the connections of one port of a service.
type proxy struct {
	listener net.Listener
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup

	mu   sync.Mutex
	to   []string
	turn int
}

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			p.done.Wait()
			return
		}
		p.done.Add(1)
		go func() { defer p.done.Done(); p.carry(conn.(*net.TCPConn)) }()
	}
}

func (p *proxy) next() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.to) == 0 {
		return ""
	}
	p.turn++
	return p.to[p.turn%len(p.to)]
}

func (p *proxy) carry(from *net.TCPConn) {
	defer from.Close()
	addr := p.next()
	if addr == "" {
		_ = from.SetLinger(0) // nobody is there: a reset
		return
	}
	conn, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", addr)
	if err != nil {
		_ = from.SetLinger(0)
		return
	}
	to := conn.(*net.TCPConn)
	defer to.Close()
	defer context.AfterFunc(p.ctx, func() { _ = from.Close(); _ = to.Close() })()
	there := make(chan struct{})
	go func() {
		defer close(there)
		_, _ = io.Copy(to, from)
		_ = to.CloseWrite()
	}()
	_, _ = io.Copy(from, to)
	_ = from.CloseWrite()
	<-there
}

func (p *proxy) close() {
	p.stop()
	_ = p.listener.Close()
}

// lookup gives the addresses of a name, and whether there is such a name.
func (s *services) lookup(name string) ([]net.IP, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.names[strings.ToLower(strings.TrimSuffix(name, "."))]
	return found, ok
}
