package worker

import (
	"net/http"
	"slices"
	"sync"
	"testing"
)

func TestRankIn(t *testing.T) {
	const a = "10.0.0.1:80"
	for _, c := range []struct {
		header []string
		ranks  int
		want   string
	}{
		{nil, 2, ""}, {[]string{a + "=1"}, 2, "1"}, {[]string{a + "=0"}, 2, "0"}, {[]string{a + "=1"}, 1, ""}, {[]string{a + "=1"}, 0, ""},
		{[]string{a + "=2"}, 2, ""}, {[]string{a + "=-1"}, 2, ""}, {[]string{a + "=x"}, 2, ""}, {[]string{a}, 2, ""}, {[]string{a + "="}, 2, ""},
		{[]string{"10.0.0.2:80=0,[::1]:80=0, " + a + "=1"}, 2, "1"}, {[]string{"10.0.0.1:8=1", a + "=01"}, 2, "1"},
		{[]string{a + "=99999999999999999999"}, 2, ""}, {[]string{"=1,,=,"}, 2, ""},
	} {
		got, ok := rankIn(http.Header{ranksHeader: c.header}, a, c.ranks)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%q of %d: %q, %v, want %q", c.header, c.ranks, got, ok, c.want)
		}
	}
}

func TestRanksOf(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 0}, {[]string{"--data-parallel-size", "4"}, 4}, {[]string{"--data-parallel-size=2"}, 2}, {[]string{"-dp", "3"}, 3},
		{[]string{"--data-parallel-size", "x"}, 0}, {[]string{"--data-parallel-size=-1"}, 0},
	} {
		if got := RanksOf(c.args); got != c.want {
			t.Errorf("%q: %d, want %d", c.args, got, c.want)
		}
	}
}

// TestEnginesAreToldTheRank that the door chose, the prefiller's too; and what a client says of it never arrives.
func TestEnginesAreToldTheRank(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Ranks = 4 })
	var mu sync.Mutex
	told := map[string][]string{}
	note := func(name string, answer http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			told[name] = append(told[name], r.Header.Get("X-Data-Parallel-Rank"))
			if r.Header.Get("X-Spokegate-Ranks") != "" {
				t.Error("the engine is told of other workers")
			}
			mu.Unlock()
			answer(w, r)
		}
	}
	p.prefill.script(note("prefill", p.prefill.answer))
	p.decode.script(note("decode", p.decode.answer))
	body := `{"stream":true,"messages":[],"model":"m"}`
	p.send(t, "a", "/v1/chat/completions", body, "X-Spokegate-Ranks", p.decoder.Addr()+"=3,"+p.prefiller.Addr()+"=1")
	p.send(t, "b", "/v1/chat/completions", body, "X-Data-Parallel-Rank", "2")
	if !slices.Equal(told["prefill"], []string{"1", ""}) || !slices.Equal(told["decode"], []string{"3", ""}) {
		t.Errorf("told %q", told)
	}
}
