package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BenchmarkRevoke revokes one key of many: the commit whole, and the cuts of 20 spokes. SPOKEGATE_HUB_KEYS says how many there
// are; 10,000 otherwise. It tells too how long a hub takes to start, and what it holds in memory for each key.
func BenchmarkRevoke(b *testing.B) {
	n := 10_000
	if s := os.Getenv("SPOKEGATE_HUB_KEYS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			database := filepath.Join(b.TempDir(), "hub.db")
			if kind == "postgres" {
				database = thePostgres.Database(b)
			}
			filled(b, database, n)
			begun, before := time.Now(), held()
			h := opened(b, Config{Database: database})
			start, bytes := time.Since(begun), held()-before
			next := 0
			for b.Loop() {
				if _, _, err := h.RevokeKey(context.Background(), Commit{Actor: admin}, fmt.Sprintf("k%d", next)); err != nil {
					b.Fatal(err)
				}
				next = (next + 7919) % n
				for i := range 20 {
					if h.Cut(fmt.Sprintf("s%d", i)) == nil {
						b.Fatal("no cut")
					}
				}
			}
			b.ReportMetric(start.Seconds(), "start-s")
			b.ReportMetric(float64(bytes)/float64(n), "B/key")
		})
	}
}

func held() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func filled(b *testing.B, database string, n int) {
	h := opened(b, Config{Database: database})
	var list []Change
	for i := range 20 {
		list = append(list, put(KindSpoke, fmt.Sprintf("s%d", i), "{}"), put(KindEndpoint, fmt.Sprintf("e%d", i), fmt.Sprintf(`{"spoke": "s%d"}`, i)),
			put(KindModel, fmt.Sprintf("m%d", i), fmt.Sprintf(`{"endpoint": "e%d"}`, i)), put(KindTeam, fmt.Sprintf("t%d", i), `{"models": ["*"]}`))
	}
	must(b, h, list...)
	begun := time.Now()
	for from := 0; from < n; from += 50_000 {
		list = list[:0]
		for i := from; i < min(from+50_000, n); i++ {
			hash := fmt.Sprintf("%08x%056x", uint32(i)*2654435761, i)
			list = append(list, put(KindKey, fmt.Sprintf("k%d", i), fmt.Sprintf(`{"id": "k%d", "team": "t%d", "sha256": %q}`, i, i%20, hash)))
		}
		must(b, h, list...)
	}
	b.Logf("%d keys made in %v", n, time.Since(begun).Round(time.Millisecond))
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
}
