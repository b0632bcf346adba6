package worker

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// streamsOrNot answers as a stream whoever asks for one.
func streamsOrNot(w http.ResponseWriter, r *http.Request) {
	if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"stream":true`) {
		sse(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "data: [DONE]\n\n")
		return
	}
	_, _ = io.WriteString(w, `{"choices":[]}`)
}

// heard is of which requests the door has heard that they have begun, in order.
func (d *fakeDoor) heard() (admissions []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.begins {
		admissions = append(admissions, b.Admissions...)
	}
	return admissions
}

// TestDoorHearsWhatHasBegun: of its own streams, each once, and of nothing that comes whole.
func TestDoorHearsWhatHasBegun(t *testing.T) {
	wants := newDoor(t, "door-1")
	wants.begun = true
	told := make(chan string, 9)
	other := newRealDoorThat(t, func(admission, endpoint, addr string) { told <- admission + " " + endpoint + " " + addr })
	s := newShimAt(t, wants, server(t, streamsOrNot), func(c *Config) { c.Doors = append(c.Doors, other.target) })
	eventually(t, "joined both", func() bool { return len(s.Status().Doors) == 2 })
	theirs := other.minter.Mint(identity.Context{Admission: "theirs", Model: "m", Endpoint: "large"}, time.Now())
	s.do(t, s.request(t, t.Context(), "whole", "/v1/chat/completions", chatBody))
	s.do(t, s.request(t, t.Context(), "first", "/v1/chat/completions", streamBody))
	s.do(t, s.request(t, t.Context(), "", "/v1/messages", streamBody, contextHeader, theirs))
	s.do(t, s.request(t, t.Context(), "last", "/v1/responses", streamBody))
	eventually(t, "the last has begun", func() bool { return slices.Contains(wants.heard(), "last") })
	if got := wants.heard(); !slices.Equal(got, []string{"first", "last"}) {
		t.Errorf("door-1 has heard of %q", got)
	}
	if got, want := wait(t, told), "theirs large "+s.Addr(); got != want {
		t.Errorf("the other door has heard of %q, want %q", got, want)
	}
	if len(told) != 0 {
		t.Errorf("and of %q", <-told)
	}
}

// TestDoorThatDoesNotWantToHear gets nothing.
func TestDoorThatDoesNotWantToHear(t *testing.T) {
	s := newShim(t, server(t, streamsOrNot), nil)
	s.do(t, s.request(t, t.Context(), "a", "/v1/chat/completions", streamBody))
	s.Worker.begun.mu.Lock()
	boxes := len(s.Worker.begun.boxes)
	s.Worker.begun.mu.Unlock()
	if got := s.door.heard(); boxes != 0 || len(got) != 0 {
		t.Errorf("%d boxes, the door has heard of %q", boxes, got)
	}
}

// TestBegunIsBounded: a door that takes nothing keeps nobody waiting, and what gathers goes at once.
func TestBegunIsBounded(t *testing.T) {
	var b begun
	box, anew := newBegunBox(), newBegunBox()
	b.tell("k", "before")
	b.name(box, "k")
	for i := range mostBegun + 5 {
		b.tell([]string{"k", "k", "stranger"}[i%3], fmt.Sprint(i))
	}
	got := b.take(box).GetBegun().Admissions
	if len(box.filled) != 1 || len(got) != (mostBegun+5)*2/3 || got[0] != "0" || got[2] != "3" {
		t.Errorf("%d signals, %d of %q", len(box.filled), len(got), got[:3])
	}
	for i := range mostBegun + 5 {
		b.tell("k", fmt.Sprint(i))
	}
	if got := b.take(box).GetBegun().Admissions; len(got) != mostBegun || got[mostBegun-1] != fmt.Sprint(mostBegun-1) {
		t.Errorf("%d waited", len(got))
	}
	b.name(anew, "k") // the door's next stream, before the one that it takes the place of is over
	b.name(box, "")
	b.tell("k", "last")
	b.tell("stranger", "lost")
	if got := b.take(anew).GetBegun().Admissions; !slices.Equal(got, []string{"last"}) || len(b.take(box).GetBegun().Admissions) != 0 {
		t.Errorf("the new stream was told of %q", got)
	}
}
