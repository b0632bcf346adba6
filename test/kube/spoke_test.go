//go:build kube

package kube

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokegate/spokegate/test/kube/rig"
)

const aliceKey = "sk-sg-5umzm2cp2zb6tfhycpnc3d5e3iitxmwddca5vn4m5hhx6iz7mereiywtei" // known to nobody but this test

// spoke is the smallest spoke of the chart, as pods.
type spoke struct {
	*testing.T
	ns      string
	service string // address of the doors' Service
}

// newSpoke renders the shape spoke-minimal with a key that this test knows, and runs it: two doors and two workers.
func newSpoke(t *testing.T) *spoke {
	ns := cluster.Namespace(t, "spoke")
	node.Tell(t, ns)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "spokegate-join"}, StringData: map[string]string{"token": strings.Repeat("join", 10)}}
	if _, err := cluster.Client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(aliceKey))
	values := fmt.Sprintf(`
doors: {drainDelaySeconds: 30} # of a busy machine: so long it may take until the Service sends nobody more
policy:
  inline: |
    endpoints: [{name: sim}]
    models: [{name: sim-small, endpoint: sim}]
    teams: [{name: research, models: ["*"]}]
    keys: [{id: alice, team: research, sha256: %s}]
`, hex.EncodeToString(sum[:]))
	text := cluster.Render(t, "spokegate-spoke", "spokegate", ns, cluster.Path("deploy/shapes/spoke-minimal.yaml"), values)
	cluster.MustApply(t, ns, "spoke-minimal", text)
	node.CreatePods(t, ns)
	svc, err := cluster.Client.CoreV1().Services(ns).Get(t.Context(), "spokegate", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &spoke{t, ns, svc.Spec.ClusterIP}
}

const (
	doors   = "app.kubernetes.io/component=door"
	workers = "app.kubernetes.io/component=worker"
)

// begin asks for an answer of this many tokens as a stream, and returns when the first of it is there. What it gives reads the rest,
// and says what is wrong with it.
func (s *spoke) begin(host string, tokens int) (rest func() error, err error) {
	body := fmt.Sprintf(`{"model":"sim-small","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tokens)
	req, err := http.NewRequestWithContext(context.WithoutCancel(s.Context()), http.MethodPost, "http://"+host+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("authorization", "Bearer "+aliceKey)
	req.Header.Set("content-type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() {
		resp.Body.Close()
		return nil, fmt.Errorf("an empty answer: %v", lines.Err())
	}
	return func() error {
		defer resp.Body.Close()
		last := ""
		for lines.Scan() {
			if lines.Text() != "" {
				last = lines.Text()
			}
		}
		if lines.Err() != nil || last != "data: [DONE]" {
			return fmt.Errorf("the stream broke off after %q: %v", last, lines.Err())
		}
		return nil
	}, nil
}

// complete is begin and the rest of it.
func (s *spoke) complete(host string) error {
	rest, err := s.begin(host, 5)
	if err != nil {
		return err
	}
	return rest()
}

// records is how many usage records all doors have on disk, by their metrics.
func (s *spoke) records() (sum int, err error) {
	pods, err := cluster.Client.CoreV1().Pods(s.ns).List(s.Context(), metav1.ListOptions{LabelSelector: doors})
	if err != nil {
		return 0, err
	}
	for _, p := range pods.Items {
		resp, err := http.Get("http://" + net.JoinHostPort(p.Status.PodIP, "10001") + "/metrics")
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), `spokegate_usage_records_total{kind="usage"} `); ok {
				n, err := strconv.ParseFloat(v, 64)
				if err != nil {
					return 0, err
				}
				sum += int(n)
			}
		}
	}
	return sum, nil
}

// TestSpoke: requests at the doors' Service are answered and metered; a worker and a door that are deleted end what they have begun
// while the others go on; nothing was started twice; and no pod asked the API server anything, for none has a token.
func TestSpoke(t *testing.T) {
	s := newSpoke(t)
	door := node.AwaitReady(t, s.ns, doors, 2)[0]
	worker := node.AwaitReady(t, s.ns, workers, 2)[0]
	rig.Eventually(t, func() error { return s.complete(s.service) })
	var before int
	rig.Eventually(t, func() (err error) { // a moment after the answer
		if before, err = s.records(); err == nil && before == 0 {
			err = fmt.Errorf("no record of the first request")
		}
		return err
	})
	for range 10 {
		if err := s.complete(s.service); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, func() error {
		if now, err := s.records(); err != nil || now != before+10 {
			return fmt.Errorf("%d records of usage, %v; there were %d and ten requests since", now, err, before)
		}
		return nil
	})

	for _, gone := range []corev1.Pod{worker, door} {
		var streams []func() error
		for range 6 { // both workers and both doors have some
			rest, err := s.begin(s.service, 300)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, rest)
		}
		done := make(chan error, len(streams))
		for _, rest := range streams {
			go func() { done <- rest() }()
		}
		asked := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { asked <- s.keepAsking(ctx) }()
		node.DeletePod(t, s.ns, gone.Name)
		cancel()
		if err := <-asked; err != nil {
			t.Errorf("while %s ended: %v", gone.Name, err)
		}
		for range streams {
			if err := <-done; err != nil {
				t.Errorf("while %s ended: %v", gone.Name, err)
			}
		}
		node.CreatePods(t, s.ns)
		node.AwaitReady(t, s.ns, doors, 2)
		node.AwaitReady(t, s.ns, workers, 2)
	}
	rig.Eventually(t, func() error { return s.complete(s.service) })
	s.untouched()
}

// keepAsking asks again and again until ctx is done, and gives the first failure.
func (s *spoke) keepAsking(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		if err := s.complete(s.service); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
	}
	return nil
}

// untouched: no container was started twice, and no account of these pods has a role, or has asked for anything.
func (s *spoke) untouched() {
	s.Helper()
	pods, err := cluster.Client.CoreV1().Pods(s.ns).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.RestartCount != 0 {
				s.Errorf("%s: %s was started again %d times; see %v", p.Name, c.Name, c.RestartCount, c.LastTerminationState)
			}
		}
		for _, v := range p.Spec.Volumes {
			if v.Projected != nil {
				s.Errorf("%s has a token", p.Name)
			}
		}
		cluster.Enough(s, s.ns, p.Spec.ServiceAccountName)
	}
}
