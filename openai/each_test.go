package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEach(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{`{}`, ``}, {`[]`, ``}, {` [ ] `, ``}, {`"{\"a\":1}"`, ``}, {`12`, ``}, {``, ``},
		{`{"a":1}`, `"a"=1`},
		{` { "a" : [1, {"b":2}] , "c\"" : "}" } `, `"a"=[1, {"b":2}] "c\""="}"`},
		{`[1,"a]",[2,3],{"x":null},true]`, `=1 ="a]" =[2,3] ={"x":null} =true`},
		{`["\\","\\\""]`, `="\\" ="\\\""`},
		// not JSON: it stops, and visits nothing twice
		{`{"a"`, ``}, {`{"a":`, ``}, {`[1,`, `=1`}, {`{1:2}`, `1=2`}, {`["abc`, `="abc`}, {`[:`, ``},
	} {
		var got []string
		Each([]byte(c.value), func(key, v []byte) bool {
			got = append(got, string(key)+"="+string(v))
			return true
		})
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %s, want %s", c.value, strings.Join(got, " "), c.want)
		}
	}
}

func TestEachStops(t *testing.T) {
	n := 0
	Each([]byte(`[1,2,3]`), func(_, _ []byte) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("went by %d", n)
	}
}

func TestUnquote(t *testing.T) {
	for _, raw := range []string{`""`, `"plain"`, `"\"\\\/\b\f\n\r\t"`, `"\u0041\u00e9\u4e2d"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx\ude00"`,
		`"\ud83d\ud83d\ude00"`, `"\uFFFD"`, `"\u0000"`, `"é\u00e9"`} {
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if got := string(Unquote([]byte("x"), []byte(raw))); got != "x"+want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
	for _, raw := range []string{``, `"`, `1`, `null`, `"a`, `a"`} {
		if got := Unquote(nil, []byte(raw)); got != nil {
			t.Errorf("%s is no string, got %q", raw, got)
		}
	}
}
