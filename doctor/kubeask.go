package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// namespace is what the API server tells of one, by the kinds of objects. They are read as they are told, without Kubernetes' types:
// only a few members count.
type namespace struct {
	name                                     string
	pods, services, budgets, policies, pools []node
}

// checkKube looks at a namespace, reading alone.
func checkKube(ctx context.Context, e *exam) {
	if e.Kube == "" {
		return
	}
	where := "namespace " + e.Kube
	ask, err := e.apiServer()
	if err != nil {
		e.found("kube-unreachable", where, "%v", err)
		return
	}
	ns := namespace{name: e.Kube}
	told := map[string]bool{}
	for _, l := range []struct {
		api, resource string
		into          *[]node
	}{
		{"/api/v1", "pods", &ns.pods}, {"/api/v1", "services", &ns.services}, {"/apis/policy/v1", "poddisruptionbudgets", &ns.budgets},
		{"/apis/networking.k8s.io/v1", "networkpolicies", &ns.policies}, {"/apis/inference.networking.k8s.io/v1", "inferencepools", &ns.pools},
	} {
		*l.into, err = ask(ctx, l.api+"/namespaces/"+e.Kube+"/"+l.resource)
		if err != nil {
			e.found("kube-unreachable", where+" "+l.resource, "%v", err)
			continue
		}
		told[l.resource] = true
		e.say("kube-unreachable", where+" "+l.resource, false, "there are %d", len(*l.into))
	}
	e.judgeNamespace(ns, told)
}

// list asks for all objects below a path.
type list func(ctx context.Context, path string) ([]node, error)

// apiServer finds the cluster as kubectl does, or as a pod is told.
func (e *exam) apiServer() (list, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if e.KubeConfig != "" {
		rules.ExplicitPath = e.KubeConfig
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "spokegate-doctor/" + e.Version
	cfg.Timeout = askTime
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(cfg.Host, "/")
	if !strings.Contains(base, "://") {
		base = "https://" + base
	}
	return func(ctx context.Context, path string) ([]node, error) { return items(ctx, client, base+path) }, nil
}

func items(ctx context.Context, client *http.Client, url string) ([]node, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostRead))
	if err != nil {
		return nil, err
	}
	said, err := parseNode(body)
	switch {
	case resp.StatusCode == http.StatusNotFound: // the cluster does not know such objects
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%d %s", resp.StatusCode, said.at("message").text())
	case err != nil:
		return nil, errors.New("what answers is no API server")
	}
	return said.at("items").list(), nil
}

// selects says that labels are those that a selector asks for. An empty selector takes all.
func selects(selector node, labels node) bool {
	for k, v := range selector.at("matchLabels").members() {
		if labels.at(k).text() != v.text() || !labels.at(k).there() {
			return false
		}
	}
	for _, x := range selector.at("matchExpressions").list() {
		has, values := labels.at(x.at("key").text()), x.at("values").texts()
		in := has.there() && slices.Contains(values, has.text())
		switch x.at("operator").text() {
		case "In":
			if !in {
				return false
			}
		case "NotIn":
			if in {
				return false
			}
		case "Exists":
			if !has.there() {
				return false
			}
		case "DoesNotExist":
			if has.there() {
				return false
			}
		}
	}
	return true
}

// container is one of a pod, with the flags that it is given.
type container struct {
	name, image, role string
	flags             map[string]string
	ports             []float64
}

// containers are a pod's, also those that begin first.
func containers(pod node) (out []container) {
	for _, key := range []string{"initContainers", "containers"} {
		for _, c := range pod.at("spec", key).list() {
			args := append(c.at("command").texts(), c.at("args").texts()...)
			x := container{name: c.at("name").text(), image: c.at("image").text(), flags: flagsOf(args)}
			for i, a := range args {
				if a == "envoy" && !slices.Contains(args[i:], "run") {
					continue // Envoy alone
				}
				if slices.Contains([]string{"door", "worker", "epp", "envoy", "hub", "sim"}, a) {
					x.role = a
					break
				}
			}
			for _, p := range c.at("ports").list() {
				x.ports = append(x.ports, p.at("containerPort").number(0))
			}
			out = append(out, x)
		}
	}
	return out
}

// flagsOf reads -name=value and -name value.
func flagsOf(args []string) map[string]string {
	out := map[string]string{}
	for i, a := range args {
		if !strings.HasPrefix(a, "-") {
			continue
		}
		name, value, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !given && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		out[name] = value
	}
	return out
}

// lasts is a flag that is a duration.
func (c container) lasts(name string, otherwise time.Duration) time.Duration {
	return node{c.flags[name]}.duration(otherwise)
}
