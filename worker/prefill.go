package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

// What became of a prefill leg. All but the first end in a prefill by our own engine, of which the client sees nothing. No
// failure is remembered: whom to ask is for the door to decide, anew for each request.
const (
	prefillRemote      = "remote"      // done by the prefiller
	prefillUnsupported = "unsupported" // not asked: this request is none for two engines
	prefillInvalid     = "invalid"     // not asked: the context that names the prefiller is not valid, or not of this request
	prefillUnreachable = "unreachable"
	prefillTimeout     = "timeout"
	prefillRefused     = "refused" // by the prefiller, or its engine: a status from 400 on, or 503
	prefillFailed      = "failed"  // another status
	prefillBroken      = "broken"  // an answer that is not whole, or makes no sense
	prefillNoParams    = "no_params"
	prefillNotTaken    = "not_taken" // done, but our own engine failed with what came of it
)

var prefillOutcomes = []string{prefillRemote, prefillUnsupported, prefillInvalid, prefillUnreachable, prefillTimeout, prefillRefused,
	prefillFailed, prefillBroken, prefillNoParams, prefillNotTaken}

const (
	// maxPrefilled bounds a prefiller's answer, in bytes. It names each block of the prompt.
	maxPrefilled = 4 << 20
	// peerDialMost is how long it may take to connect to a prefiller.
	peerDialMost   = 2 * time.Second
	transferParams = openai.TransferParams
	// remoteDecode asks vLLM to keep the blocks of the prompt for another engine.
	remoteDecode = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
)

// newPeers is the transport to other workers.
func (c Config) newPeers() *http.Transport {
	t := newTransport((&net.Dialer{Timeout: peerDialMost}).DialContext)
	t.TLSClientConfig = c.PeerTLS
	return t
}

// askPrefilled asks the engine, after the prefiller where the door named one.
func (a *attempt) askPrefilled(r *http.Request) (*http.Response, error) {
	if a.trusted.Leg != identity.LegMain || len(r.Header[prefillContextHeader]) == 0 {
		return a.ask(r)
	}
	params, outcome, err := a.prefill(r)
	if a.ctx.Err() != nil {
		return nil, a.ctx.Err()
	}
	if outcome != prefillRemote {
		a.prefilled(outcome, err)
		return a.ask(r)
	}
	resp, err := a.ask(r, setMember(a.request, transferParams, params))
	// An engine that cannot get the blocks answers so, before anything else.
	if err == nil && resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable {
		resp.Body.Close()
		a.prefilled(prefillNotTaken, fmt.Errorf("status %d", resp.StatusCode))
		return a.ask(r)
	}
	a.prefilled(prefillRemote, nil)
	return resp, err
}

func (a *attempt) prefilled(outcome string, why error) {
	a.w.metrics.prefills.WithLabelValues(outcome).Inc()
	if why != nil {
		a.w.log.Warn("prefilled here", "admission", a.trusted.Admission, "outcome", outcome, "error", why)
	}
}

// prefill has the prompt read by the worker that the door named, and returns what our engine must know to get its blocks.
func (a *attempt) prefill(r *http.Request) (params []byte, outcome string, err error) {
	tokens := r.Header[prefillContextHeader]
	leg, err := a.w.verifier.VerifyLeg(tokens[0], identity.LegPrefill, time.Now())
	switch {
	case err != nil:
		return nil, prefillInvalid, err
	case len(tokens) != 1 || leg.Admission != a.trusted.Admission || leg.Worker == "" || leg.Worker == a.w.address:
		return nil, prefillInvalid, errors.New("the context for the prefill leg names no other worker, or another request")
	case !a.request.Splittable(a.body.bytes()):
		return nil, prefillUnsupported, nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.w.cfg.PrefillTimeout)
	defer cancel()
	resp, err := a.w.peers.RoundTrip(a.toPrefiller(ctx, leg.Worker, r))
	if err != nil {
		return nil, failedPrefill(ctx, err), err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		outcome = prefillFailed
		if resp.StatusCode >= 400 && resp.StatusCode < 500 || resp.StatusCode == http.StatusServiceUnavailable {
			outcome = prefillRefused
		}
		return nil, outcome, fmt.Errorf("status %d %s", resp.StatusCode, resp.Header.Get(refusedHeader))
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxPrefilled+1))
	switch {
	case err != nil:
		return nil, failedPrefill(ctx, err), err
	case len(answer) > maxPrefilled || !json.Valid(answer):
		return nil, prefillBroken, errors.New("the prefiller's answer is too long, or not JSON")
	}
	if params = paramsIn(answer); params == nil {
		return nil, prefillNoParams, errors.New("the prefiller's engine told no " + transferParams)
	}
	return params, prefillRemote, nil
}

// failedPrefill is the outcome of an exchange that did not come to its end.
func failedPrefill(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded):
		return prefillTimeout
	case neverArrived(err):
		return prefillUnreachable
	}
	return prefillBroken
}

// toPrefiller is the client's own request for another worker, with that leg's context. Its shim makes of it what its engine
// is to get.
func (a *attempt) toPrefiller(ctx context.Context, worker string, r *http.Request) *http.Request {
	body := a.body.edited()
	out := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: worker, Path: r.URL.Path},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: body.size, Body: body.open(),
		Header: http.Header{
			"Content-Type": {"application/json"}, "User-Agent": {"spokegate"},
			prefillContextHeader: r.Header[prefillContextHeader], "X-Request-Id": {a.trusted.Admission}, attemptHeader: {strconv.Itoa(int(a.number))},
		},
	}
	if ranks := r.Header[ranksHeader]; len(ranks) > 0 {
		out.Header[ranksHeader] = ranks
	}
	if a.w.cfg.PeerTLS != nil {
		out.URL.Scheme = "https"
	}
	a.trace(out.Header)
	return out.WithContext(ctx)
}

// paramsIn finds what the engine told, in JSON that is valid; nil: nothing.
func paramsIn(answer []byte) (params []byte) {
	openai.Each(answer, func(key, value []byte) bool {
		if string(key) == `"`+transferParams+`"` && value[0] == '{' {
			params = value
		}
		return true
	})
	return params
}

// prefillOnly makes an engine read the prompt, generate one token, and keep the blocks for another. That token must not be
// the end, or vLLM would let the blocks go.
func prefillOnly(body []byte, q *openai.Request) []edit {
	edits := []edit{
		setMember(q, "max_tokens", []byte("1")), setMember(q, "min_tokens", []byte("1")), setMember(q, transferParams, []byte(remoteDecode)),
	}
	if q.Op == openai.Chat {
		edits = append(edits, setMember(q, "max_completion_tokens", []byte("1")))
	}
	for name, value := range map[string]string{"stream": "false", "stream_options": "null"} {
		if at, given := q.Get(name); given && !bytes.Equal(body[at.Start:at.End], []byte(value)) {
			edits = append(edits, edit{at, []byte(value)})
		}
	}
	return edits
}

// setMember gives a member of the top level another value, or adds it at the end.
func setMember(q *openai.Request, name string, value []byte) edit {
	if at, given := q.Get(name); given {
		return edit{at, value}
	}
	end := q.Members[len(q.Members)-1].Value.End // there is one at least: the model
	return edit{openai.Span{Start: end, End: end}, append([]byte(`,"`+name+`":`), value...)}
}
