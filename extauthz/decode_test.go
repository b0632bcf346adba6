package extauthz

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/router"
)

// A body that unfolds to far more than was sent has its place until it is judged, and gives it back: one after the other, more
// pass than there are places.
func TestLargeBodiesGiveTheirPlaceBack(t *testing.T) { both(t, testLargeBodiesGiveTheirPlaceBack) }

func testLargeBodiesGiveTheirPlaceBack(t *testing.T) {
	g := newGate(t)
	g.Picker = pickerFunc(func() (router.Choice, error) { return router.Choice{Addrs: []string{"10.0.0.1:1"}}, nil })
	for n := range 20 {
		text := `{"model":"cheap","messages":[]}` + strings.Repeat(" ", 512<<10)
		if n%2 == 1 {
			text = strings.Repeat(" ", int(g.BodyLimit)+1)
		}
		resp, err := g.ask(t, t.Context(), set("x-request-id", fmt.Sprint("r-", n)), set("authorization", "Bearer "+g.boundless), set("content-encoding", "gzip"),
			body(string(encoded(t, "gzip", []byte(text)))))
		switch {
		case err != nil:
			t.Fatal(err)
		case n%2 == 1:
			denial(t, resp, 413, "body_too_large")
		case resp.GetOkResponse() == nil:
			t.Fatal("a large body does not pass", resp)
		}
	}
}
