package epp

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// bench is what all tests share.
type bench struct {
	*workers
	*pickers
	*gateway
}

// lab is the one bench; TestMain has no other way to hand it to tests.
var lab bench

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/epp:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("/tmp", "sgepp")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if lab.workers, err = startWorkers(); err != nil {
		return 1, err
	}
	defer lab.workers.stop()
	if lab.pickers, err = startPickers(dir, lab.workers); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.pickers.stop()) }()
	if lab.gateway, err = startGateway(dir, lab.workers, lab.pickers); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.gateway.stop()) }()
	if err := lab.await(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// await waits until the picker picks each of the workers.
func (l *bench) await() error {
	for _, w := range l.workers.all() {
		for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			req, err := http.NewRequest("GET", "http://"+l.listeners["http"]+"/v1/models", nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Test-Subset", encoded(list(w.addr)))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
			if time.Now().After(limit) {
				return fmt.Errorf("the picker does not pick %s: %s", w.addr, resp.Status)
			}
		}
	}
	return nil
}
