package worker

import (
	"cmp"
	"net/http"
	"time"
)

// send writes and flushes.
func (a *attempt) send(rw http.ResponseWriter, p []byte) error {
	gathers := a.gathers(p)
	if gathers {
		a.client.gather(len(p))
	}
	err := a.write(rw, p)
	if err == nil {
		err = a.flush()
	}
	if gathers {
		err = cmp.Or(err, a.client.release())
	}
	return err
}

// gathers says that p is too large for one write, and small enough to be copied for one.
func (a *attempt) gathers(p []byte) bool {
	return a.client != nil && len(p) > serverWrites-framing && len(p) <= gatherMost
}

// write writes. The headers go with the first bytes.
func (a *attempt) write(rw http.ResponseWriter, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if a.status == 0 {
		a.status, a.first = http.StatusOK, time.Now()
		rw.WriteHeader(a.status)
	}
	n, err := rw.Write(p)
	a.sent += int64(n)
	return err
}

// flush lets go of what was written.
func (a *attempt) flush() error {
	if a.status == 0 { // nothing was
		return nil
	}
	return a.rc.Flush()
}
