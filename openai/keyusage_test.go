package openai

import (
	"encoding/json"
	"testing"
	"time"
)

func TestKeyUsageBody(t *testing.T) {
	at := time.Unix(1767225661, 5e8)
	if got, want := string(KeyUsageBody("k-1", "blue", at, nil)), `{"object":"usage","key":"k-1","team":"blue","at":1767225661,"limits":[]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got := KeyUsageBody(`k"1`, "blue", at, []KeyLimit{
		{Level: "key", Owner: `k"1`, Kind: "concurrency", Max: 8, Used: 9, Remaining: -1, Reset: -time.Second},
		{Level: "team", Owner: "blue", Model: "sim-large", Kind: "tokens_per_minute", Max: 1000, Used: 10, Remaining: 990,
			Reset: 58500*time.Millisecond + 1, Period: time.Unix(1767225660, 0)},
	})
	want := `{"object":"usage","key":"k\"1","team":"blue","at":1767225661,"limits":[` +
		`{"level":"key","owner":"k\"1","model":null,"kind":"concurrency","max":8,"used":9,"remaining":0,"reset_seconds":0.000,"period_start":null},` +
		`{"level":"team","owner":"blue","model":"sim-large","kind":"tokens_per_minute","max":1000,"used":10,"remaining":990,` +
		`"reset_seconds":58.501,"period_start":1767225660}]}`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !json.Valid(got) {
		t.Error("not JSON")
	}
}
