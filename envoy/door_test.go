package envoy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"

	"github.com/spokegate/spokegate/fleet"
	"github.com/spokegate/spokegate/identity/mtls"
	"github.com/spokegate/spokegate/identity/mtls/mtlstest"
)

func valid() Door { return Door{Listen: "127.0.0.1:10000", DoorSocket: "/run/door.sock"} }

func TestValidate(t *testing.T) {
	files := mtlstest.New(t).Issue(t, "door.test")
	for name, c := range map[string]struct {
		change func(*Door)
		want   string // "" is valid
	}{
		"defaults":                {func(*Door) {}, ""},
		"IPv6":                    {func(d *Door) { d.Listen, d.Admin = "[::]:80", "[::1]:9901" }, ""},
		"admin on a socket":       {func(d *Door) { d.Admin = "/run/admin.sock" }, ""},
		"listen on a name":        {func(d *Door) { d.Listen = "localhost:80" }, "listen address"},
		"listen nowhere":          {func(d *Door) { d.Listen = "" }, "listen address"},
		"admin for all":           {func(d *Door) { d.Admin = "0.0.0.0:9901" }, "admin address"},
		"admin for the network":   {func(d *Door) { d.Admin = "10.0.0.1:9901" }, "admin address"},
		"no door":                 {func(d *Door) { d.DoorSocket = "" }, "door socket"},
		"relative door":           {func(d *Door) { d.DoorSocket = "door.sock" }, "door socket"},
		"long path":               {func(d *Door) { d.DoorSocket = "/" + strings.Repeat("a", 107) }, "door socket"},
		"relative picker":         {func(d *Door) { d.PickerSocket = "p" }, "picker socket"},
		"negative cap":            {func(d *Door) { d.BodyLimit = -1 }, "body limit"},
		"cap beyond 32 bits":      {func(d *Door) { d.BodyLimit = 1 << 33 }, "body limit"},
		"head check over the cap": {func(d *Door) { d.BodyLimit, d.HeadCheckAbove = 1<<20, 1<<20+1 }, "head check"},
		"cap that would hang":     {func(d *Door) { d.BodyLimit = 1000 }, "want 1 MiB"},
		"idle before request":     {func(d *Door) { d.IdleTimeout = time.Second }, "timeouts"},
		"hops beyond reason":      {func(d *Door) { d.TrustedHops = 17 }, "trusted hops"},
		"negative hops":           {func(d *Door) { d.TrustedHops = -1 }, "trusted hops"},
		"TLS to workers":          {func(d *Door) { d.WorkerTLS, d.Spoke = files, "north" }, ""},
		"TLS without authorities": {func(d *Door) { d.WorkerTLS, d.Spoke = mtls.Files{Cert: files.Cert, Key: files.Key}, "north" }, "authorities"},
		"TLS without a spoke":     {func(d *Door) { d.WorkerTLS = files }, "spoke"},
		"negative threads":        {func(d *Door) { d.Concurrency = -1 }, "concurrency"},
	} {
		t.Run(name, func(t *testing.T) {
			d := valid()
			c.change(&d)
			err := d.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate = %v, want %q", err, c.want)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	d := valid()
	got := strings.Join(Command("/bin/envoy", d, "/b.yaml"), " ")
	if want := "/bin/envoy --config-path /b.yaml --disable-hot-restart --log-level warning"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d.Concurrency, d.LogLevel = 3, "debug"
	if got := strings.Join(Command("e", d, "b"), " "); !strings.HasSuffix(got, "--log-level debug --concurrency 3") {
		t.Errorf("got %s", got)
	}
}

func TestResourcesOfAView(t *testing.T) {
	rs := valid().Resources(sampleView(), []string{"small", "large", "large"})
	got := map[string][]string{}
	for i, c := range rs[resource.EndpointType] {
		if n := rs[resource.ClusterType][i].(interface{ GetName() string }).GetName(); n != endpointName(c) {
			t.Errorf("cluster %s has the endpoints of %s", n, endpointName(c))
		}
		got[endpointName(c)] = addresses(c)
	}
	want := map[string][]string{"endpoint/large": {"10.0.0.2:8000", "10.0.0.3:8000", "[2001:db8::1]:8000"}, "endpoint/small": nil}
	if len(got) != 2 || !slices.Equal(got["endpoint/large"], want["endpoint/large"]) || len(got["endpoint/small"]) != 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestVersionsFollowContent: the same content has the same version whatever the order, another has another.
func TestVersionsFollowContent(t *testing.T) {
	d, v := valid(), sampleView()
	a := versions(d.Resources(v, []string{"large", "small"}))
	shuffled := &fleet.View{Version: 99, Workers: slices.Clone(v.Workers)}
	slices.Reverse(shuffled.Workers)
	if b := versions(d.Resources(shuffled, []string{"small", "large"})); !equal(a, b) {
		t.Errorf("the order of workers changes versions: %v, %v", a, b)
	}
	v.Workers[3].State = fleet.Ready
	b := versions(d.Resources(v, []string{"large", "small"}))
	for kind := range a {
		if changed := a[kind] != b[kind]; changed != (kind == resource.EndpointType) {
			t.Errorf("a worker became ready; %s changed: %v", kind, changed)
		}
	}
}

func versions(rs map[resource.Type][]types.Resource) map[string]string {
	out := map[string]string{}
	for kind, r := range rs {
		out[kind] = version(r)
	}
	return out
}

func equal(a, b map[string]string) bool {
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestYAMLIsStable(t *testing.T) {
	var first string
	for range 5 {
		text, err := YAML(valid().Bootstrap(), valid().Static(sampleView(), []string{"large"}))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(text)
		}
		if string(text) != first {
			t.Fatal("the same configuration was printed in two ways")
		}
	}
	for _, want := range []string{"\n---\n", "cluster_header: x-spokegate-endpoint", "observability_mode: true", "endpoint/large"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in the YAML", want)
		}
	}
}

func endpointName(r types.Resource) string {
	return r.(interface{ GetClusterName() string }).GetClusterName()
}

func addresses(r types.Resource) (out []string) {
	for _, l := range r.(assignmentMessage).GetEndpoints() {
		for _, e := range l.LbEndpoints {
			out = append(out, hostPort(e.GetEndpoint().Address))
		}
	}
	return out
}

var _ proto.Message = assignmentMessage(nil)

func TestEndpointNames(t *testing.T) {
	for cluster, want := range map[string]string{ClusterName("large"): "large", "endpoint/": "", "large": "", doorCluster: "", "": ""} {
		if got := EndpointOf(cluster); got != want {
			t.Errorf("the endpoint of %q is %q, want %q", cluster, got, want)
		}
	}
}
