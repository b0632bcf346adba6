package openai

import (
	"strings"
	"testing"
)

func TestSteering(t *testing.T) {
	r, err := Scan(Chat, []byte(`{"rid":null,"model":"m","metadata":{"priority":1},"cache_s\u0061lt":"x","prompt_embeds":"","kv_transfer_params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Steering(), " "); got != "rid cache_salt prompt_embeds kv_transfer_params" {
		t.Errorf("got %s", got)
	}
}

func TestKnownNamesAreFolded(t *testing.T) {
	for name := range known {
		if fold(name) != name {
			t.Errorf("%q can never be found by its folded form", name)
		}
	}
}
