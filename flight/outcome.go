package flight

import (
	"net/http"

	"github.com/spokegate/spokegate/usage"
)

// Anomalies that a flight finds; a report's own and the reason of a loss come beside them.
const (
	noAccessLog = "no_access_log" // the meter alone knows, or what Envoy said last while it ran
	unmetered   = "unmetered"     // nobody has counted it, tokens are unknown
	meterCut    = "meter_cut"     // Envoy says it ended well, but the meter did not see the end: tokens may be missing
)

// Outcome says how a request ended. Either part may be nil, when it did not come. The order of the rules is the order of
// trust: what the meter saw pass, or a shim had noted of what passed, then Envoy's word, then how the stream ended.
//
//	the shim refused it                                        not_served
//	no success status  Envoy found no worker                   not_served
//	                   Envoy saw the worker break off, or
//	                   waited too long for it                  upstream_cut
//	                   the client left before an answer        client_cut
//	                   the answer is Envoy's own               not_served
//	                   otherwise: it is the worker's           upstream_error
//	success status     an error event of code upstream_cut     upstream_cut
//	                   another error event or error object     upstream_error
//	                   a terminal event, or a whole JSON value complete, whatever came after
//	                   Envoy saw the worker break off, or …    upstream_cut
//	                   the client left                         client_cut
//	                   the meter saw the end, or Envoy did     complete
//	                   otherwise                               upstream_cut
func Outcome(m *Metered, l *Logged) (outcome string, anomalies []string) {
	anomalies = doubts(m, l)
	switch {
	case m != nil && m.Refused:
		return usage.OutcomeNotServed, anomalies
	case succeeded(m, l):
		outcome = begun(m, l)
	default:
		outcome = failed(m, l)
	}
	if outcome == usage.OutcomeComplete && m != nil && !m.SawEnd && !m.Report.Terminal {
		anomalies = append(anomalies, meterCut)
	}
	return outcome, anomalies
}

// doubts are the anomalies that do not depend on the outcome.
func doubts(m *Metered, l *Logged) (list []string) {
	switch {
	case m != nil:
		list = append(list, m.Report.Anomalies...)
	case l == nil || !l.unanswered():
		list = append(list, unmetered)
	}
	if l == nil {
		list = append(list, noAccessLog)
	}
	return list
}

// status is what the client got; 0: nothing, as far as is known.
func status(m *Metered, l *Logged) int {
	switch {
	case l != nil && l.Status != 0:
		return l.Status
	case m != nil:
		return m.Status
	}
	return 0
}

func succeeded(m *Metered, l *Logged) bool {
	s := status(m, l)
	return s >= http.StatusOK && s < http.StatusBadRequest
}

// failed judges a request that got no answer, or an answer that says no.
func failed(m *Metered, l *Logged) string {
	answered := status(m, l) != 0
	switch {
	case l != nil && l.NoUpstream:
		return usage.OutcomeNotServed
	case l != nil && (l.UpstreamCut || l.Timeout):
		return usage.OutcomeUpstreamCut
	case l != nil && l.ClientCut && !answered:
		return usage.OutcomeClientCut
	case l != nil && l.Served == "":
		return usage.OutcomeNotServed
	case answered:
		return usage.OutcomeUpstreamError
	}
	return usage.OutcomeUpstreamCut
}

// begun judges a request whose answer began well.
func begun(m *Metered, l *Logged) string {
	switch {
	case m != nil && m.Report.UpstreamCut:
		return usage.OutcomeUpstreamCut
	case m != nil && m.Report.Failed:
		return usage.OutcomeUpstreamError
	case m != nil && m.Report.Terminal:
		return usage.OutcomeComplete
	case l != nil && (l.UpstreamCut || l.Timeout):
		return usage.OutcomeUpstreamCut
	case l != nil && l.ClientCut:
		return usage.OutcomeClientCut
	case l != nil || m.SawEnd: // without l it was m that had the status
		return usage.OutcomeComplete
	}
	return usage.OutcomeUpstreamCut
}
