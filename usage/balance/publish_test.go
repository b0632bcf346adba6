package balance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestPublished: what goes to others adds up to what was found.
func TestPublished(t *testing.T) {
	w := newWorld(4).live(200)
	items := w.spools()
	i := w.some(usage.KindUsage, items)
	victim := items[i].Record
	r := auditOf(t, worldOptions(t), spoolTraits, slices.Delete(items, i, i+1))
	var rows, sources, all usagev1.Balance
	ids := map[string]bool{}
	for _, rec := range r.Published() {
		b, to := rec.Balance, &rows
		switch {
		case rec.Kind != usage.KindBalance || ids[rec.Id] || !strings.HasPrefix(rec.Id, fmt.Sprintf("balance/%d/", r.At.UnixMilli())):
			t.Errorf("%v", rec)
		case b.Hour == nil && b.Of == "":
			to = &all
		case b.Hour == nil:
			to = &sources
		}
		ids[rec.Id] = true
		to.Admitted, to.Usage, to.Served, to.MissingUsage, to.Gaps = to.Admitted+b.Admitted, to.Usage+b.Usage, to.Served+b.Served, to.MissingUsage+b.MissingUsage, to.Gaps+b.Gaps
		if b.Balanced != (b.Of != "" && b.Of != victim.Source || b.Hour != nil && b.MissingUsage == 0) {
			t.Errorf("%v", rec)
		}
	}
	if all.Admitted != 200 || all.Usage != 199 || all.MissingUsage != 1 || all.Gaps != 1 {
		t.Errorf("%v", &all)
	}
	rows.Gaps = 1 // of no hour
	if !proto.Equal(&rows, &all) || !proto.Equal(&sources, &all) {
		t.Errorf("rows %v, sources %v, all %v", &rows, &sources, &all)
	}
}
