package rig

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// probeClient asks as a kubelet does: it believes any certificate, and follows no redirection.
var probeClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// try runs what a probe or a hook says, once.
func (r *running) try(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return r.get(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		port, err := r.port(probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(r.pod.box.IP, port))
		if err != nil {
			return err
		}
		return conn.Close()
	case probe.GRPC != nil:
		return r.check(ctx, probe.GRPC)
	case probe.Exec != nil:
		return r.run(ctx, probe.Exec.Command)
	}
	return fmt.Errorf("a probe that this kubelet does not know")
}

func (r *running) get(ctx context.Context, get *corev1.HTTPGetAction) error {
	port, err := r.port(get.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(cmp.Or(get.Host, r.pod.box.IP), port)+get.Path, nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s answers %s", get.Path, resp.Status)
	}
	return nil
}

func (r *running) check(ctx context.Context, action *corev1.GRPCAction) error {
	conn, err := grpc.NewClient(net.JoinHostPort(r.pod.box.IP, fmt.Sprint(action.Port)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ask := &healthv1.HealthCheckRequest{}
	if action.Service != nil {
		ask.Service = *action.Service
	}
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, ask)
	if err == nil && answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("it is %v", answer.GetStatus())
	}
	return err
}

// run runs a command in the container, as its user.
func (r *running) run(ctx context.Context, command []string) error {
	pid := fmt.Sprint(r.cmd.Process.Pid)
	args := []string{"-t", pid, "-m", "-n", "-p", "-u", "-S", strconv.Itoa(r.made.UID), "-G", strconv.Itoa(r.made.GID), "--"}
	out, err := exec.CommandContext(ctx, "nsenter", append(args, command...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", command, err, out)
	}
	return nil
}

// port finds one by number, or by the name that the container gives it.
func (r *running) port(want intstr.IntOrString) (string, error) {
	if want.Type == intstr.Int {
		return fmt.Sprint(want.IntVal), nil
	}
	for _, p := range r.spec.Ports {
		if p.Name == want.StrVal {
			return fmt.Sprint(p.ContainerPort), nil
		}
	}
	return "", fmt.Errorf("the container %s has no port %s", r.spec.Name, want.StrVal)
}

// watch tries a probe again and again and tells each change of its verdict, until ctx is done. Before the first verdict it is begins.
func (r *running) watch(ctx context.Context, probe *corev1.Probe, begins bool, tell func(good bool, why error)) {
	period := time.Duration(cmp.Or(probe.PeriodSeconds, 10)) * time.Second
	state, good, bad := begins, int32(0), int32(0)
	if !pauseFor(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second) {
		return
	}
	for {
		err := r.try(ctx, probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case !state && good >= cmp.Or(probe.SuccessThreshold, 1):
			state = true
			tell(true, nil)
		case state && bad >= cmp.Or(probe.FailureThreshold, 3):
			state = false
			tell(false, err)
		}
		if !pauseFor(ctx, period) {
			return
		}
	}
}

// pauseFor is false when ctx is done before.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
