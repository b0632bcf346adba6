package ledger

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// BenchmarkCount counts records from their JSON on: three a request, a thousand a transaction, of 20 teams with 5 keys.
func BenchmarkCount(b *testing.B) {
	for _, kind := range []string{"sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			database := filepath.Join(b.TempDir(), "l.db")
			if kind == "postgres" {
				database = thePostgres.Database(b)
			}
			l := opened(b, Config{Database: database})
			lines := make([][]byte, 0, b.N)
			rnd := rand.New(rand.NewPCG(1, 1))
			for i := 0; len(lines) < b.N; i++ {
				admitted, used, served := request(fmt.Sprintf("%016x%016x", rnd.Uint64(), rnd.Uint64()), time.Duration(i)*time.Millisecond, time.Second)
				for _, r := range []*usagev1.Record{admitted, used, served} {
					r.Team, r.Key = fmt.Sprint("team", i%20), fmt.Sprint("key", i%100)
					lines = append(lines, usage.AppendJSON(nil, proto.CloneOf(r)))
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			var list []*usagev1.Record
			for _, line := range lines[:b.N] {
				r, err := usage.ParseJSON(line)
				if err != nil {
					b.Fatal(err)
				}
				if list = append(list, r); len(list) == 1000 {
					take(b, l, list...)
					list = list[:0]
				}
			}
			take(b, l, list...)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
