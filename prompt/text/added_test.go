package text

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	workerv1 "github.com/spokegate/spokegate/api/worker/v1"
)

// TestAddedTokensAreTheLongest holds the tree against a look at every token at every place.
func TestAddedTokensAreTheLongest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("ab< "[r.IntN(4)])
		}
		return b.String()
	}
	for range 3000 {
		var tokens []*workerv1.AddedToken
		for range r.IntN(8) {
			tokens = append(tokens, &workerv1.AddedToken{Content: word(4), SingleWord: r.IntN(3) == 0})
		}
		a, err := newAdded(tokens)
		if err != nil {
			t.Fatal(err)
		}
		text := word(30)
		wantAt, want := len(text), (*workerv1.AddedToken)(nil)
		for i := 0; i < len(text) && want == nil; i++ {
			for _, token := range tokens {
				if strings.HasPrefix(text[i:], token.Content) && (want == nil || len(token.Content) > len(want.Content)) &&
					(!token.SingleWord || isWord(text, i, i+len(token.Content))) {
					wantAt, want = i, token
				}
			}
		}
		if at, got := a.next(text); at != wantAt || got != want {
			t.Fatalf("%q with %v: %v at %d, want %v at %d", text, tokens, got, at, want, wantAt)
		}
	}
}

// TestManyAddedTokensAreLookedForAtOnce: Gemma has six thousand that begin alike. Were each looked for at each place, a client's
// prompt of nothing but their beginning would take this an hour.
func TestManyAddedTokensAreLookedForAtOnce(t *testing.T) {
	var tokens []*workerv1.AddedToken
	for i := range 6000 {
		tokens = append(tokens, &workerv1.AddedToken{Content: fmt.Sprintf("<unused%d>", i)})
	}
	n, err := newNormaliser(&workerv1.Profile{AddedTokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("<", 4<<20)
	if got := n.append(nil, text); string(got) != text {
		t.Errorf("%d bytes became %d", len(text), len(got))
	}
}

func TestAddedTokensAreBounded(t *testing.T) {
	for want, tokens := range map[string][]*workerv1.AddedToken{
		"the tokenizer has 131073 added tokens: at most 131072 are taken": make([]*workerv1.AddedToken, mostAdded+1),
		"an added token has 257 bytes: at most 256 are taken":             {{Content: strings.Repeat("a", longestAdded+1)}},
	} {
		if _, err := New(&workerv1.Profile{AddedTokens: tokens}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
