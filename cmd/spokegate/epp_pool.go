package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/spokegate/spokegate/fleet/kube"
	"github.com/spokegate/spokegate/fleet/roster"
)

// poolFlags say in which InferencePool a picker finds its workers.
type poolFlags struct {
	given           string
	namespace, name string // of given; an empty namespace is this process's own
	kubeconfig      string
	elect, status   bool
}

func (p *poolFlags) register(f *flag.FlagSet) {
	f.StringVar(&p.given, "pool", "", "InferencePool whose pods are the workers, found through the API server: [NAMESPACE/]`NAME`; without one, the namespace that this process is in")
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "`file` that says where the API server is; empty: as a pod of the cluster finds it")
	f.BoolVar(&p.elect, "leader-elect", false, "of several pickers for -pool only one is ready, by a Lease")
	f.BoolVar(&p.status, "pool-status", false, "write into the status of -pool how this picker does with it")
}

func (p *poolFlags) complete(workers string) error {
	if p.given == "" {
		if p.kubeconfig != "" || p.elect || p.status {
			return errors.New("-kubeconfig, -leader-elect and -pool-status go with -pool")
		}
		return nil
	}
	if workers != "" {
		return errors.New("-workers and -pool: workers are in a file or in a pool, not in both")
	}
	p.name = p.given
	if namespace, name, cut := strings.Cut(p.given, "/"); cut {
		p.namespace, p.name = namespace, name
		if namespace == "" {
			p.name = ""
		}
	}
	if p.name == "" || strings.Contains(p.name, "/") {
		return fmt.Errorf("-pool %q: want NAME or NAMESPACE/NAME", p.given)
	}
	return nil
}

// inPool is what a picker does with its pool. nil: it has none.
type inPool struct {
	source   *kube.Source
	elector  *kube.Elector  // nil: all lead
	reporter *kube.Reporter // nil: nothing is written
	resigned chan struct{}
}

func newInPool(s *standalone, keeper roster.Keeper) (*inPool, error) {
	klog.SetSlogLogger(s.log)
	flags := s.eppFlags.pool
	client, err := kube.NewClient(flags.kubeconfig, "spokegate/"+buildVersion())
	if err != nil {
		return nil, err
	}
	namespace := flags.namespace
	if namespace == "" {
		namespace = client.Namespace
	}
	p := &inPool{resigned: make(chan struct{})}
	p.source = kube.New(&kube.Source{Client: client, Namespace: namespace, Pool: flags.name, Endpoint: s.endpoint, Keeper: keeper, Log: s.log, Registerer: s.registry})
	if flags.elect {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		p.elector = &kube.Elector{Client: client, Namespace: namespace, Name: "spokegate-" + flags.name, Identity: host + "_" + rand.Text()[:8],
			Log: s.log, Registerer: s.registry, Changed: func(leads bool) { s.health.led(leads) }}
	}
	if flags.status {
		p.reporter = &kube.Reporter{Source: p.source, Leads: p.leads, Log: s.log, Registerer: s.registry,
			Pickable: func() int { return len(s.fleet.Pickable(s.endpoint)) }}
	}
	return p, nil
}

// run follows the pool until ctx is done. It takes part in the election until it resigns.
func (p *inPool) run(ctx context.Context) error {
	if p == nil {
		return nil
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return p.source.Run(ctx) })
	if p.elector != nil {
		work.Go(func() error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-p.resigned:
					cancel()
				case <-ctx.Done():
				}
			}()
			return p.elector.Run(ctx)
		})
	}
	if p.reporter != nil {
		work.Go(func() error { return p.reporter.Run(ctx) })
	}
	return work.Wait()
}

// resign lets another lead. It is called once.
func (p *inPool) resign() {
	if p != nil {
		close(p.resigned)
	}
}

func (p *inPool) leads() bool {
	if p.elector == nil {
		return true
	}
	leads, _, _ := p.elector.Status()
	return leads
}

// empty says that it is known that nobody is there to be picked: no pod is ready.
func (p *inPool) empty() bool {
	if p == nil {
		return false
	}
	st := p.source.Status()
	return st.Known && st.Gone == "" && st.Pods["ready"] == 0
}

// report tells of it in /readyz.
func (p *inPool) report(r *report) {
	if p == nil {
		return
	}
	name, st := p.source.Namespace+"/"+p.source.Pool, p.source.Status()
	var pods []string
	for _, state := range kube.States {
		if n := st.Pods[state]; n > 0 {
			pods = append(pods, fmt.Sprintf("%d %s", n, state))
		}
	}
	switch {
	case st.Known:
		r.note("pool %s: %d workers; pods: %s", name, st.Workers, strings.Join(append(pods, "no others"), ", "))
	case st.Gone == "":
		r.note("pool %s: not known yet", name)
	}
	if st.Gone != "" {
		r.note("pool %s: %s", name, st.Gone)
	}
	if st.Away != "" {
		r.note("pool %s: the API server does not answer, and what is known stays: %s", name, st.Away)
	}
	for i, problem := range st.Problems {
		if i == mostDegraded {
			r.note("pool %s: %d more problems", name, len(st.Problems)-i)
			break
		}
		r.note("pool %s: %s", name, problem)
	}
	if p.elector == nil {
		return
	}
	leads, holder, err := p.elector.Status()
	r.say(leads, "leader: %s", map[bool]string{true: "this picker", false: "not this picker"}[leads])
	if err != nil {
		r.note("leader: the lease %s cannot be read or written: %v", p.elector.Name, err)
	} else if !leads && holder != "" {
		r.note("leader: %s", holder)
	}
}
