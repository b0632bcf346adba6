package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Client asks an API server. A token that its file holds anew is taken up.
type Client struct {
	Namespace           string // that of the service account, or of the kubeconfig's context
	pools, pods, leases *rest.RESTClient
	params              runtime.ParameterCodec
}

// namespaceFile is where a pod finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// NewClient reads a kubeconfig; where that is empty, it takes what a pod is given. agent is how it names itself, as
// "spokegate/1.2".
func NewClient(kubeconfig, agent string) (*Client, error) {
	cfg, namespace, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = agent
	c := &Client{Namespace: namespace}
	cfg.NegotiatedSerializer, c.params = codecs()
	cfg.ContentType = runtime.ContentTypeJSON
	http, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		into **rest.RESTClient
		gv   schema.GroupVersion
	}{{&c.pools, poolKind}, {&c.pods, podKind}, {&c.leases, leaseKind}} {
		own := *cfg
		own.GroupVersion, own.APIPath = &of.gv, "/apis"
		if of.gv.Group == "" {
			own.APIPath = "/api"
		}
		if *of.into, err = rest.RESTClientForConfigAndClient(&own, http); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func configOf(kubeconfig string) (cfg *rest.Config, namespace string, err error) {
	if kubeconfig != "" {
		from := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, nil)
		if namespace, _, err = from.Namespace(); err == nil {
			cfg, err = from.ClientConfig()
		}
		return cfg, namespace, err
	}
	if cfg, err = rest.InClusterConfig(); err != nil {
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this process is in no pod of a cluster: give it a -kubeconfig")
		}
		return nil, "", err
	}
	name, err := os.ReadFile(namespaceFile)
	if err != nil {
		return nil, "", fmt.Errorf("the namespace of the service account: %w", err)
	}
	return cfg, strings.TrimSpace(string(name)), nil
}

// watched is what one watch asks for.
type watched struct {
	resource, namespace string
	field, label        string // selectors
}

// listWatch asks for a list and for what changes in it, and tells each time what came of it.
func (c *Client) listWatch(of *rest.RESTClient, w watched, told func(error)) *cache.ListWatch {
	ask := func(o metav1.ListOptions) *rest.Request {
		o.FieldSelector, o.LabelSelector = w.field, w.label
		return of.Get().Namespace(w.namespace).Resource(w.resource).VersionedParams(&o, c.params)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := ask(o).Do(ctx).Get()
			answered(ctx, err, told)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			events, err := ask(o).Watch(ctx)
			answered(ctx, err, told)
			return events, err
		},
	}
}

// answered tells how it went. A server that wants to be asked in another way, from the start (410) or by a list (422), answers; and
// one that nobody waits for any more says nothing.
func answered(ctx context.Context, err error, told func(error)) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err):
		told(nil)
	default:
		told(err)
	}
}
