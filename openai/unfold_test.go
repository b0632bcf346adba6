package openai

import (
	"context"
	"strings"
	"testing"
)

// blanks is what unfolds to so many of them.
func blanks(t *testing.T, n int) []byte { return []byte(gzipped(t, strings.Repeat(" ", n))) }

// Bodies that unfold to far more than was sent are in memory a few at a time; ordinary ones do not wait for them.
func TestBombsWaitForEachOther(t *testing.T) {
	const most = 1 << 20
	d, bomb := NewDecoder(most), blanks(t, fairLeast+1)
	for range decodePlaces {
		_, done, refused := d.Decode(t.Context(), "gzip", bomb)
		if refused != nil {
			t.Fatal(refused)
		}
		defer done()
	}
	if body, done, refused := d.Decode(t.Context(), "gzip", blanks(t, fairLeast)); refused != nil || len(body) != fairLeast {
		t.Fatal("an ordinary body waits:", refused)
	} else {
		done()
	}
	passed := make(chan *Error)
	go func() {
		_, done, refused := d.Decode(t.Context(), "gzip", bomb)
		done()
		passed <- refused
	}()
	select {
	case <-passed:
		t.Fatal("a bomb did not wait")
	default:
	}
	<-d.places // as if one of them were done
	if refused := <-passed; refused != nil {
		t.Fatal("a large body does not pass, though there is room:", refused)
	}
	_, done, refused := d.Decode(t.Context(), "gzip", blanks(t, most+1)) // what is too large in the end has its place too
	if refused == nil || refused.Status != 413 || len(d.places) != decodePlaces {
		t.Errorf("%v with %d places", refused, len(d.places))
	}
	done()
	d.places <- struct{}{} // for the deferred
}

// One that has nowhere to be in memory is refused when its client gives up, and takes no place later.
func TestBombsDoNotWaitForever(t *testing.T) {
	d := NewDecoder(1 << 20)
	for range decodePlaces {
		d.places <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, done, refused := d.Decode(ctx, "gzip", blanks(t, fairLeast+1))
	done()
	if refused == nil || refused.Status != 503 || len(d.places) != decodePlaces {
		t.Errorf("%v with %d places", refused, len(d.places))
	}
}
