package ledger

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokegate/spokegate/test/pgtest"
)

func TestMain(m *testing.M) {
	if child := os.Getenv("SPOKEGATE_LEDGER_CHILD"); child != "" {
		os.Exit(runChild(child))
	}
	code := m.Run()
	thePostgres.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var thePostgres pgtest.Server

// onBoth runs a test on each database.
func onBoth(t *testing.T, f func(t *testing.T, database string)) { thePostgres.OnBoth(t, f) }
