package epp

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// lab is what all tests share: the workers, the pickers and Envoy. TestMain has no other way to hand it to tests.
var lab struct {
	*workers
	*pickers
	*gateway
}

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
	return m.Run(), nil
}
