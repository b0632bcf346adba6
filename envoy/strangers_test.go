package envoy

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestStrangersCannotFillEnvoy: while nobody has looked at their keys yet, uploads wait in the kernel.
func TestStrangersCannotFillEnvoy(t *testing.T) {
	const uploads, each = 200, 8 << 20
	r := startRig(t, false, func(d *Door) { d.CheckTimeout = patience })
	before := r.allocated(t)
	body := make([]byte, each)
	var wg sync.WaitGroup
	for range uploads {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		wg.Go(func() {
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-test-hang: head\r\ncontent-length: %d\r\n\r\n", each)
			c.SetWriteDeadline(time.Now().Add(time.Second))
			if n, err := c.Write(body); err == nil {
				t.Errorf("all of %d bytes were taken", n)
			}
		})
	}
	wg.Wait()
	r.eventually("all waiting", func() bool { return len(r.services.authz.checks.all()) == uploads })
	grown := r.allocated(t) - before
	t.Logf("%d KiB an upload", grown/uploads>>10)
	if most := 512 << 10; grown > uploads*most {
		t.Errorf("%d uploads hold %d bytes, more than %d each", uploads, grown, most)
	}
}

// allocated is Envoy's heap in bytes.
func (r *rig) allocated(t *testing.T) int {
	t.Helper()
	var m struct{ Allocated string }
	if err := json.Unmarshal([]byte(r.admin("/memory")), &m); err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(m.Allocated)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
