package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/xds"
	"github.com/spokegate/spokegate/xds/follow"
)

// hubFlags say where a door's policy comes from when it is no file.
type hubFlags struct {
	address   string
	tls       mtls.Files
	name      string
	tokenFile string
	maxAge    time.Duration
	gpus      string
	labels    string
}

func (h *hubFlags) register(f *flag.FlagSet) {
	f.StringVar(&h.address, "hub", "", "`address` of the hub that the policy comes from: host:port or unix:PATH; in place of -policy")
	f.StringVar(&h.tls.Cert, "hub-cert", "", "`file` with the PEM certificate chain that the hub knows this door by; a renewed one is taken up")
	f.StringVar(&h.tls.Key, "hub-key", "", "`file` with its key")
	f.StringVar(&h.tls.CA, "hub-ca", "", "`file` with the PEM certificates of the authorities that vouch for the hub")
	f.StringVar(&h.name, "hub-name", "", "the `name` in the hub's certificate, where it is another than the host in -hub")
	f.StringVar(&h.tokenFile, "hub-token-file", "", "`file` with the token for a hub on this machine, where there are no certificates")
	f.DurationVar(&h.maxAge, "policy-max-age", 0, "admit nobody when the hub has not been heard for so long; 0: the door goes on with what it has")
	f.StringVar(&h.gpus, "gpus", "", "what the hub is told of this spoke's GPUs: `TYPE=CAPACITY[/FREE]`, comma-separated")
	f.StringVar(&h.labels, "labels", "", "what the hub is told of this spoke: `NAME=VALUE`, comma-separated")
}

// complete refuses what does not fit.
func (h *hubFlags) complete(policyFile string) error {
	switch {
	case h.address == "" && *h != (hubFlags{}):
		return errors.New("-hub-…, -policy-max-age, -gpus and -labels are of no use without -hub")
	case h.address == "":
		return nil
	case policyFile != "":
		return errors.New("the policy comes from -policy or from -hub: give one of them")
	case !h.tls.Given() && !onThisMachine(h.address):
		return fmt.Errorf("-hub %s is across the network: give -hub-cert, -hub-key and -hub-ca", h.address)
	case !h.tls.Given() && h.tokenFile == "":
		return errors.New("-hub needs -hub-cert, -hub-key and -hub-ca, or -hub-token-file for one on this machine")
	case h.maxAge < 0 || h.maxAge > 0 && h.maxAge < leastMaxAge:
		return fmt.Errorf("-policy-max-age %v: want at least %v, or 0", h.maxAge, leastMaxAge)
	}
	for _, path := range []*string{&h.tls.Cert, &h.tls.Key, &h.tls.CA, &h.tokenFile} {
		if *path != "" {
			var err error
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	if _, err := h.gpuList(); err != nil {
		return err
	}
	_, err := h.labelMap()
	return err
}

// leastMaxAge leaves a hub that restarts the time to do so.
const leastMaxAge = time.Minute

func (h *hubFlags) gpuList() (list []*hubv1.Gpu, err error) {
	for _, part := range splitNames(h.gpus) {
		kind, count, ok := strings.Cut(part, "=")
		capacity, free, split := strings.Cut(count, "/")
		if !split {
			free = capacity
		}
		c, bad := strconv.ParseUint(capacity, 10, 31)
		n, worse := strconv.ParseUint(free, 10, 31)
		if !ok || kind == "" || bad != nil || worse != nil || n > c {
			return nil, fmt.Errorf("-gpus %q: want TYPE=CAPACITY or TYPE=CAPACITY/FREE, like H100=8/2", part)
		}
		list = append(list, &hubv1.Gpu{Type: kind, Capacity: uint32(c), Free: uint32(n)})
	}
	return list, nil
}

func (h *hubFlags) labelMap() (map[string]string, error) {
	out := map[string]string{}
	for _, part := range splitNames(h.labels) {
		name, value, ok := strings.Cut(part, "=")
		if _, twice := out[name]; !ok || name == "" || twice {
			return nil, fmt.Errorf("-labels %q: want NAME=VALUE, each name once", part)
		}
		out[name] = value
	}
	return out, nil
}

// source is where the door's policy comes from; the hub, if it is one, too.
func (d *door) source() (xds.Source, error) {
	h := &d.hubFlags
	if h.address == "" {
		return xds.NewFile(d.doorFlags.policy, d.log), nil
	}
	cfg := follow.Config{Address: h.address, Name: h.name, Spoke: d.spoke, Door: d.name, Version: buildVersion(), Dir: filepath.Join(d.dir, "policy"),
		Log: d.log, Reports: follow.Reports{State: d.hubReport}}
	var err error
	if h.tls.Given() {
		cfg.Certificates, err = openCertificates(h.tls, "hub", d.registry, d.log)
	}
	if err == nil && h.tokenFile != "" {
		cfg.Token, err = readSecret(h.tokenFile, "the hub's token")
	}
	if err != nil {
		return nil, err
	}
	d.hubUsage(&cfg.Reports)
	if d.hub, err = follow.New(cfg); err != nil {
		return nil, err
	}
	d.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokegate_policy_age_seconds", Help: "For how long the hub has not been heard; 0 while it is on the line.",
	}, func() float64 { return d.policyAge().Seconds() }))
	return d.hub, nil
}

// policyAge is for how long the hub has not been heard: since the policy was made where nothing better is known.
func (d *door) policyAge() time.Duration {
	st := d.hub.Status()
	if st.Connected {
		return 0
	}
	heard := st.Heard
	if snap := d.policy.Load(); heard.IsZero() && snap != nil {
		heard = snap.Cut().Revision().GetMadeAt().AsTime()
	}
	if heard.IsZero() {
		return 0 // there is no policy yet, and so nobody is admitted by an old one
	}
	return max(0, time.Since(heard))
}

// tooOld says why nobody is admitted, if the policy is older than it may be.
func (d *door) tooOld() string {
	if d.hub == nil || d.hubFlags.maxAge == 0 {
		return ""
	}
	if age := d.policyAge(); age > d.hubFlags.maxAge {
		return fmt.Sprintf("the door's policy is too old: its hub has not been heard for %v", age.Round(time.Second))
	}
	return ""
}

// followHub is what runs beside the agent where there is a hub.
func (d *door) followHub(ctx context.Context) error {
	if d.hub == nil {
		return nil
	}
	defer func() { _ = d.hub.Close() }()
	var keeping sync.WaitGroup
	keeping.Go(func() { _ = d.hub.Keep(ctx) })
	defer keeping.Wait()
	return d.hub.Report(ctx)
}

// hubReport is what the hub is told of this door.
func (d *door) hubReport() *hubv1.Report {
	st := d.agent.Status()
	digest, _ := hex.DecodeString(st.Digest)
	out := &hubv1.Report{Revision: st.Revision, Digest: digest, Since: stamp(st.Since), FromDisk: st.FromDisk, LastNack: st.LastNack,
		LastNackAt: stamp(st.LastNackAt), Version: buildVersion()}
	for _, r := range d.agent.Revoked() {
		out.Revoked = append(out.Revoked, &hubv1.Revocation{Key: r.Key, At: stamp(r.At)})
	}
	out.Gpus, _ = d.hubFlags.gpuList()
	out.Labels, _ = d.hubFlags.labelMap()
	out.Workers, out.Degraded = d.hubWorkers()
	out.Limits = d.limiter.Status()
	if shared, ok := d.limiter.(*limits.Fallback); ok {
		out.LimitsFallback = shared.Away()
	}
	out.Spools = []*hubv1.Spool{d.journal.tell("usage"), d.rejections.journal.tell("rejected")}
	return out
}

// hubWorkers counts workers by endpoint and state, and names those that are degraded.
func (d *door) hubWorkers() (workers []*hubv1.Workers, worse []string) {
	counts := map[[2]string]uint32{}
	for _, w := range d.fleet.View().Workers {
		counts[[2]string{w.Endpoint, w.State.String()}]++
		for _, reason := range w.Status().Degraded {
			if len(worse) < mostDegraded {
				worse = append(worse, w.Name+": "+reason)
			}
		}
	}
	for k, n := range counts {
		workers = append(workers, &hubv1.Workers{Endpoint: k[0], State: k[1], Count: n})
	}
	slices.SortFunc(workers, func(a, b *hubv1.Workers) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.State, b.State))
	})
	return workers, worse
}

// hubOf tells how it stands with the hub.
func (h health) hubOf(r *report) {
	if h.hub == nil {
		return
	}
	st := h.hub.Status()
	switch {
	case st.Connected:
		r.note("hub %s: on the line since %s", st.Address, st.Since.UTC().Format(time.RFC3339))
	case st.Heard.IsZero():
		r.note("hub %s: away, and it is not known since when; the policy goes on: %s", st.Address, st.Err)
	default:
		r.note("hub %s: not heard since %s; the policy goes on: %s", st.Address, st.Heard.UTC().Format(time.RFC3339), st.Err)
	}
	if why := h.tooOld(); why != "" {
		r.say(false, "policy: %s", why)
	}
}

// stamp is a time on the wire; zero is none.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
