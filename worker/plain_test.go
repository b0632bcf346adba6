package worker

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":7,"completion_tokens":3}`
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for value, want := range map[string]bool{
		`"a\n\"{[\\"`: true, `"\u00e9"`: true, `"says \"usage\""`: true, nested(plainDepth - 1): true, "\"\u20ac\"": true,
		`[0,-1,1e5,-1.1920928955078125e-07,1796009068,999999999999999999,0.1234567890123456789012]`: true,

		`NaN`: false, `[-Infinity]`: false, `007`: false, `[1,]`: false, "\"a\nb\"": false, `"\q"`: false, "\"\xff\"": false,
		`"\ud83d\ude00"`: false, `"\uD800"`: false, nested(plainDepth): false, nested(5000): false,
		`18446744073709551615`: false, `9223372036854775808`: false, `1e999`: false, `-1E+308`: false,
		strings.Repeat("9", 400) + ".0": false, `{"usage":{}}`: false,
	} {
		if got := plain([]byte(`{"value":` + value + `,` + usage + `}`)); got != want {
			t.Errorf("%.60s: %v", value, got)
		}
	}
	for _, whole := range []string{"{" + usage + "}x", "\ufeff{" + usage + "}", "{" + usage + ",}", ""} {
		if plain([]byte(whole)) {
			t.Errorf("%q", whole)
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	answer := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat("some words ", 40) + `"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
	b.SetBytes(int64(len(answer)))
	for b.Loop() {
		plain(answer)
	}
}
