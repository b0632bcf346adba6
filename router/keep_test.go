package router

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/policy"
)

// TestOfManyTheCheapestAreExplained, and all of them where no pick is made.
func TestOfManyTheCheapestAreExplained(t *testing.T) {
	var addrs []string
	for i := range 100 {
		addrs = append(addrs, fmt.Sprintf("10.0.0.%d:1", 100+i))
	}
	p := newPool(t, Config{OverlapWeight: 1}, addrs...)
	for i, addr := range addrs { // the later, the cheaper
		p.pick(text(200-i, fmt.Sprint(i)), addr)
	}
	would, err := p.Would(p.now, Ask{Prompt: []byte(text(10, "p"))})
	if err != nil || strings.Count(would.Explain(), "\n") != 1+100 {
		t.Errorf("%v, %s", err, would.Explain())
	}
	c := p.pick(text(10, "p"))
	if got := strings.Split(c.Explain(), "\n"); len(got) != 1+16+1+1 || got[17] != "and 84 more that cost as much or more" ||
		!strings.HasPrefix(got[1], "10.0.0.199:1: ") || !strings.HasSuffix(got[1], "(chosen)") || !strings.HasPrefix(got[16], "10.0.0.184:1: ") {
		t.Errorf("%d lines: %q", len(got), got)
	}
	if c.Addrs[0] != "10.0.0.199:1" || c.Addrs[3] != "10.0.0.196:1" {
		t.Errorf("%v", c.Addrs)
	}
	p.SetRouting(policy.Routing{OverlapWeight: 1, BlockBytes: 8, Temperature: 10})
	for range 50 { // whoever it is, the one chosen is among them
		c := p.pick(text(10, "p"))
		if !strings.Contains(c.Explain(), c.Addrs[0]+": ") || strings.Count(c.Explain(), "(chosen)") != 1 {
			t.Fatalf("%v\n%s", c.Addrs, c.Explain())
		}
		c.Booking.Release()
	}
}
