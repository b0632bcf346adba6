package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/openai"
)

const (
	// maxWhole is how much of a body that is not a stream is held, so that a client gets all or a clean error. A larger
	// one streams.
	maxWhole = 256 << 10
	// readSize is what is read of a stream at once. A stream holds it as long as it lives.
	readSize = 16 << 10
	// errorMost is how long the body of a refusal may take. Its status says enough.
	errorMost = 5 * time.Second
)

var (
	streams = sync.Pool{New: func() any { return new(streamRoom) }}
	wholes  = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// streamRoom is what a stream reads into and writes from.
type streamRoom struct {
	in  [readSize]byte
	out []byte
}

// whole is a buffer with what can be read of an answer, up to maxWhole. It goes back to wholes.
func whole(body io.Reader) (held *bytes.Buffer, err error) {
	held = wholes.Get().(*bytes.Buffer)
	held.Reset()
	_, err = held.ReadFrom(&io.LimitedReader{R: body, N: maxWhole})
	return held, err
}

// relayStream passes an event stream on, event by event, and says by its end how the request ended.
func (a *attempt) relayStream(rw http.ResponseWriter, r *http.Request, resp *http.Response, body io.Reader) {
	cutter := &events{to: newNotes(a.op, a.stripper())}
	rw.Header().Set("Content-Type", openai.EventStream) // and not as the engine spells it: the door's meter goes by it
	rw.Header().Set(noteHeader, noteStream)
	room := streams.Get().(*streamRoom)
	defer func() {
		if cap(room.out) <= 4*readSize {
			streams.Put(room)
		}
	}()
	for {
		n, err := body.Read(room.in[:])
		room.out = cutter.write(room.out[:0], room.in[:n])
		if a.status == 0 && len(room.out) > 0 {
			a.begin()
		}
		pass := a.send
		if err != nil && !a.gathers(room.out) {
			pass = a.write // the end of the body follows
		}
		gone := pass(rw, room.out)
		if err != nil {
			a.finishStream(rw, r, resp, cutter, err, gone)
			return
		}
		if gone != nil {
			a.endStream(cutter, clientCut)
			return
		}
	}
}

// begin tells the door that has admitted the request that its prompt is computed.
func (a *attempt) begin() {
	if a.trusted.Leg == identity.LegMain {
		a.w.begun.tell(a.trusted.Door, a.trusted.Admission)
	}
}

// stripper takes out of the stream what the client did not ask for; nil: there is no such thing.
func (a *attempt) stripper() *stripper {
	if !countable(a.request) {
		return nil
	}
	return &stripper{client: a.request.IncludeUsage}
}

// finishStream is the end of the engine's bytes, as it wanted or not. gone says that the client had left. What was written last
// leaves with the end of the body, in one write, but where the record must say whether it did.
func (a *attempt) finishStream(rw http.ResponseWriter, r *http.Request, resp *http.Response, cutter *events, err, gone error) {
	if gone != nil || err != io.EOF && r.Context().Err() != nil {
		a.endStream(cutter, clientCut)
		return
	}
	rest, whole := cutter.close(nil)
	if a.write(rw, rest) != nil {
		a.endStream(cutter, clientCut)
		return
	}
	a.endStream(cutter, upstreamCut)
	// No terminal event is fine if the engine ended its body in a way that a death could not.
	framed := resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
	switch {
	case a.outcome != upstreamCut:
		_ = a.write(rw, cutter.lastNote()) // of a client that has left the record says the same
	case a.status == 0:
		a.brokeOff(err)
		a.cutBefore(rw)
	case a.flush() != nil:
		a.outcome = clientCut
	case err == io.EOF && whole && framed:
		a.outcome = complete
		a.anomalies = append(a.anomalies, "no_terminal_event")
		_ = a.write(rw, cutter.lastNote())
	default:
		a.brokeOff(err)
		if a.send(rw, cutter.cutOff(cutEvent(a.op, a.cut().midway()))) != nil {
			a.outcome = clientCut
		}
	}
}

// endStream takes the meter's report. A stream whose terminal event was seen is complete whoever left after it.
func (a *attempt) endStream(cutter *events, otherwise string) {
	cutter.leave()
	a.report, a.metered = cutter.to.meter.Close(), true
	switch {
	case a.report.Failed:
		a.outcome = upstreamError
	case a.report.Terminal:
		a.outcome = complete
	default:
		a.outcome = otherwise
	}
}

// cutEvent tells a client mid-stream that the answer ends here, in the way that its SDK raises to the caller.
func cutEvent(op openai.Op, message string) []byte {
	switch op {
	case openai.Messages:
		return []byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" + message + "\",\"code\":\"" + openai.CodeUpstreamCut + "\"}}\n\n")
	case openai.Responses:
		return []byte("event: error\ndata: {\"type\":\"error\",\"code\":\"" + openai.CodeUpstreamCut + "\",\"message\":\"" + message +
			"\",\"param\":null,\"error\":{\"message\":\"" + message + "\",\"type\":\"server_error\",\"param\":null,\"code\":\"" + openai.CodeUpstreamCut + "\"}}\n\n")
	}
	return []byte("data: {\"error\":{\"message\":\"" + message + "\",\"type\":\"server_error\",\"param\":null,\"code\":\"" + openai.CodeUpstreamCut + "\"}}\n\n")
}

// relayWhole passes one JSON value on.
func (a *attempt) relayWhole(rw http.ResponseWriter, r *http.Request, media string, body io.Reader) {
	rw.Header().Set("Content-Type", "application/json")
	buf, err := whole(body)
	defer wholes.Put(buf)
	held := buf.Bytes()
	meter := openai.NewMeter(a.op, false)
	meter.Write(held)
	if err == nil && len(held) == maxWhole {
		a.relayLarge(rw, r, meter, held, body)
		return
	}
	a.report, a.metered = meter.Close(), true
	switch {
	case err != nil && r.Context().Err() != nil:
		a.outcome = clientCut
	case !a.report.Terminal && (err != nil || media == "application/json"):
		a.brokeOff(err)
		a.cutBefore(rw)
	case !a.report.Terminal:
		a.badEngine(rw, fmt.Errorf("it is %.64q, not JSON", media))
	default:
		if err != nil {
			a.anomalies = append(a.anomalies, "bad_body_end") // the value is whole all the same
		}
		rw.Header().Set("Content-Length", strconv.Itoa(len(held)))
		noteWhole(rw, &a.report, held)
		a.endWhole(a.send(rw, held))
	}
}

// noteError is noteWhole for an error, of which nothing else is counted.
func (a *attempt) noteError(rw http.ResponseWriter, body []byte) {
	meter := openai.NewMeter(a.op, false)
	meter.Write(body)
	report := meter.Close()
	noteWhole(rw, &report, body)
}

// noteWhole tells the door what the answer has used.
func noteWhole(rw http.ResponseWriter, report *openai.Report, body []byte) {
	var room [openai.MaxNote]byte
	rw.Header().Set(noteHeader, string(openai.AppendNote(room[:0], report, int64(len(body)))))
}

func (a *attempt) endWhole(gone error) {
	switch {
	case gone != nil:
		a.outcome = clientCut
	case a.report.Failed:
		a.outcome = upstreamError
	default:
		a.outcome = complete
	}
}

// relayLarge streams what is too large to be held. A break can then only be shown by breaking too.
func (a *attempt) relayLarge(rw http.ResponseWriter, r *http.Request, meter *openai.Meter, held []byte, body io.Reader) {
	gone, err := a.send(rw, held), error(nil)
	buf := held[:cap(held)] // it has passed
	for gone == nil && err == nil {
		var n int
		n, err = body.Read(buf)
		meter.Write(buf[:n])
		gone = a.send(rw, buf[:n])
	}
	a.report, a.metered = meter.Close(), true
	switch {
	case gone != nil || err != io.EOF && r.Context().Err() != nil:
		a.outcome = clientCut
	case err != io.EOF || !a.report.Terminal:
		a.outcome, a.broken = upstreamCut, true
	default:
		a.endWhole(nil)
	}
}

// relayError passes an engine's refusal on: as it is if it is JSON, else in our words. What an engine says of our own
// access to it (401, 403, 407), redirects, and what is no refusal are faults of the setup, and 502 to the client.
func (a *attempt) relayError(rw http.ResponseWriter, r *http.Request, resp *http.Response, body io.Reader) {
	status := resp.StatusCode
	switch {
	case status < 400, status > 599, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		a.badEngine(rw, errors.New("its status is "+strconv.Itoa(status)))
		return
	}
	late := time.AfterFunc(errorMost, func() { resp.Body.Close() })
	defer late.Stop()
	buf, err := whole(body)
	defer wholes.Put(buf)
	held := buf.Bytes()
	switch {
	case err != nil && r.Context().Err() != nil:
		a.outcome = clientCut
		return
	case err != nil || !json.Valid(held):
		a.outcome = upstreamError
		a.fail(rw, &openai.Error{Status: status, Type: "server_error", Code: "upstream_error", Message: "The engine answered with status " + strconv.Itoa(status) + "."})
		return
	}
	a.outcome, a.status, a.first = upstreamError, status, time.Now()
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Content-Length", strconv.Itoa(len(held)))
	a.noteError(rw, held)
	rw.WriteHeader(status)
	n, _ := rw.Write(held)
	a.sent = int64(n)
}
