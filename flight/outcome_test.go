package flight

import (
	"slices"
	"testing"

	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

func TestOutcome(t *testing.T) {
	const (
		complete, clientCut, upstreamCut   = usage.OutcomeComplete, usage.OutcomeClientCut, usage.OutcomeUpstreamCut
		upstreamError, notServed, hostPort = usage.OutcomeUpstreamError, usage.OutcomeNotServed, "10.0.0.1:8000"
	)
	metered := func(status int, change ...func(*Metered)) *Metered {
		m := &Metered{Status: status}
		for _, c := range change {
			c(m)
		}
		return m
	}
	end := func(m *Metered) { m.SawEnd = true }
	terminal := func(m *Metered) { m.Report.Terminal = true }
	failed := func(m *Metered) { m.Report.Failed = true }
	cut := func(m *Metered) { m.Report.UpstreamCut, m.Report.Failed = true, true }
	refused := func(m *Metered) { m.Refused = true }
	doubt := func(m *Metered) { m.Report.Anomalies = []string{"bad_usage"} }
	logged := func(status int, served string, change ...func(*Logged)) *Logged {
		l := &Logged{Status: status, Served: served}
		for _, c := range change {
			c(l)
		}
		return l
	}
	dc := func(l *Logged) { l.ClientCut = true }
	uc := func(l *Logged) { l.UpstreamCut = true }
	none := func(l *Logged) { l.NoUpstream = true }
	timeout := func(l *Logged) { l.Timeout = true }

	cases := []struct {
		name      string
		m         *Metered
		l         *Logged
		want      string
		anomalies []string
	}{
		{"JSON answer delivered", metered(200, terminal, end), logged(200, hostPort), complete, nil},
		{"stream with [DONE]", metered(200, terminal, end), logged(200, hostPort), complete, nil},
		{"[DONE], then the client closes", metered(200, terminal), logged(200, hostPort, dc), complete, nil},
		{"[DONE], then the worker breaks off", metered(200, terminal), logged(200, hostPort, uc), complete, nil},
		{"[DONE], then the worker lingers too long", metered(200, terminal), logged(200, hostPort, timeout), complete, nil},
		{"stream without terminal event, proper end", metered(200, end), logged(200, hostPort), complete, nil},
		{"doubtful report", metered(200, terminal, end, doubt), logged(200, hostPort), complete, []string{"bad_usage"}},
		{"client leaves mid-stream", metered(200), logged(200, hostPort, dc), clientCut, nil},
		{"client leaves before the first byte", metered(0), logged(0, hostPort, dc), clientCut, nil},
		{"client leaves before dispatch", nil, logged(0, "", dc), clientCut, nil},
		{"client leaves at the last flush", metered(200, end), logged(200, hostPort, dc), clientCut, nil},
		{"worker breaks off mid-stream", metered(200), logged(200, hostPort, uc), upstreamCut, nil},
		{"worker breaks off, then the client goes", metered(200), logged(200, hostPort, uc, dc), upstreamCut, nil},
		{"worker breaks off before the first byte", metered(503, terminal, failed, end), logged(503, hostPort, uc), upstreamCut, nil},
		{"worker silent mid-stream", metered(200), logged(200, hostPort, timeout), upstreamCut, nil},
		{"worker silent before the first byte", metered(504, terminal, failed, end), logged(504, hostPort, timeout), upstreamCut, nil},
		{"shim says that its engine died", metered(200, cut, end), logged(200, hostPort), upstreamCut, nil},
		{"shim says so and the client leaves", metered(200, cut), logged(200, hostPort, dc), upstreamCut, nil},
		{"error event mid-stream", metered(200, failed, end), logged(200, hostPort), upstreamError, nil},
		{"error event, then [DONE]", metered(200, failed, terminal, end), logged(200, hostPort), upstreamError, nil},
		{"error object with status 200", metered(200, failed, terminal, end), logged(200, hostPort), upstreamError, nil},
		{"error event, then the client leaves", metered(200, failed), logged(200, hostPort, dc), upstreamError, nil},
		{"status 500 from the worker", metered(500, failed, terminal, end), logged(500, hostPort), upstreamError, nil},
		{"status 400 from the worker", metered(400, failed, terminal, end), logged(400, hostPort), upstreamError, nil},
		{"status 500 and the client leaves", metered(500, failed), logged(500, hostPort, dc), upstreamError, nil},
		{"no healthy worker", metered(503, failed, terminal, end), logged(503, "", none), notServed, nil},
		{"none could be connected to, the last is named", metered(503, failed, terminal, end), logged(503, hostPort, none), notServed, nil},
		{"Envoy's own 503", metered(503, failed, terminal, end), logged(503, ""), notServed, nil},
		{"Envoy's own 403", metered(403, failed, terminal, end), logged(403, ""), notServed, nil},
		{"draining", metered(503, refused, failed, terminal, end), logged(503, hostPort), notServed, nil},
		{"draining, and the log is missing", metered(503, refused, failed, terminal, end), nil, notServed, []string{noAccessLog}},
		{"admission timed out", nil, logged(503, ""), notServed, nil},

		{"meter missing, proper end", nil, logged(200, hostPort), complete, []string{unmetered}},
		{"meter missing, client left", nil, logged(200, hostPort, dc), clientCut, []string{unmetered}},
		{"meter missing, worker broke off", nil, logged(200, hostPort, uc), upstreamCut, []string{unmetered}},
		{"meter missing, worker's 503", nil, logged(503, hostPort), upstreamError, []string{unmetered}},
		{"nothing sent, no flag", nil, logged(0, hostPort), upstreamCut, nil},
		{"meter broke off, Envoy ended well", metered(200), logged(200, hostPort), complete, []string{meterCut}},
		{"meter broke off before the answer", metered(0), logged(200, hostPort), complete, []string{meterCut}},
		{"log missing, terminal event", metered(200, terminal), nil, complete, []string{noAccessLog}},
		{"log missing, proper end", metered(200, end), nil, complete, []string{noAccessLog}},
		{"log missing, no end", metered(200), nil, upstreamCut, []string{noAccessLog}},
		{"log missing, nothing came", metered(0), nil, upstreamCut, []string{noAccessLog}},
		{"log missing, error status", metered(500, terminal, failed, end), nil, upstreamError, []string{noAccessLog}},
		{"nothing known", nil, nil, upstreamCut, []string{unmetered, noAccessLog}},
	}
	for _, c := range cases {
		got, anomalies := Outcome(c.m, c.l)
		if got != c.want || !slices.Equal(anomalies, c.anomalies) {
			t.Errorf("%s: %s %q, want %s %q", c.name, got, anomalies, c.want, c.anomalies)
		}
	}
}

// The zero value of what is known says that nothing is known, not that all is well.
func TestOutcomeOfZeroFacts(t *testing.T) {
	for _, c := range []struct {
		m *Metered
		l *Logged
	}{{nil, nil}, {&Metered{}, nil}, {nil, &Logged{}}, {&Metered{}, &Logged{}}, {&Metered{Report: openai.Report{}}, nil}} {
		if got, _ := Outcome(c.m, c.l); got == usage.OutcomeComplete {
			t.Errorf("Outcome(%+v, %+v) = %s", c.m, c.l, got)
		}
	}
}
