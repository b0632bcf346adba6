package doctor

import (
	"strings"
	"testing"
	"time"
)

func TestPublic(t *testing.T) {
	for given, want := range map[string]string{
		"":                                        "",
		"127.0.0.1:6379":                          "127.0.0.1:6379",
		"unix:/run/a@b":                           "unix:/run/a@b",
		"redis://stores:6379/1":                   "redis://stores:6379/1",
		"redis://u:se@cret@h:6379":                "redis://…@h:6379",
		"redis://:se/cr?et@h,h2:1?cluster=true":   "redis://…@h,h2:1?cluster=true",
		"postgres://hub@db/hub?password=secret":   "postgres://…@db/hub?…",
		"https://key:secret@engine.example/v1?x=": "https://…@engine.example/v1?…",
	} {
		if got := Public(given); got != want || strings.Contains(got, "secret") {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

func TestParts(t *testing.T) {
	for given, want := range map[string][3]string{
		"127.0.0.1:10001":           {"http", "127.0.0.1:10001", ""},
		"unix:/run/x":               {"http", "unix:/run/x", ""},
		"http://10.0.0.1:8000":      {"http", "10.0.0.1:8000", ""},
		"http://10.0.0.1:8000/":     {"http", "10.0.0.1:8000", ""},
		"https://e.example/base/":   {"https", "e.example:443", "/base"},
		"http://[::1]/x":            {"http", "[::1]:80", "/x"},
		"https://u:p@e.example:9/a": {"https", "e.example:9", "/a"},
	} {
		scheme, at, base := parts(given)
		if got := [3]string{scheme, at, base}; got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}

func TestTheExitStatus(t *testing.T) {
	for severity, want := range map[Severity]int{"": 0, OK: 0, Note: 0, CannotTell: 1, Warning: 1, Fault: 2} {
		if got := (Report{Verdict: severity}).Status(); got != want {
			t.Errorf("%q: %d", severity, got)
		}
	}
}

func TestPrint(t *testing.T) {
	e := &exam{Target: Target{Version: "v1"}}
	e.say("clock-skew", "door a/b", false, "fine")
	e.say("policy-refused", "door a/b", true, "%s", "line 1\nline\x1b[31m 2"+strings.Repeat("x", 1000))
	e.say("policy-none", "door a/b", false, "revision 1")
	e.say("policy-none", "door a/c", false, "revision 1")
	r := e.report()
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "ok           clock         1 thing is as it should be\n" +
		"ok           policy        2 things are as they should be, in 2 places\n" +
		"fault        policy        policy-refused: door a/b: line 1 line [31m 2" + strings.Repeat("x", mostSaid-18) + "…\n" +
		"                           what was changed last is not in force; the policy before it goes on\n" +
		"                     mend: the reason stands beside it: correct the file, or the hub's revision\n" +
		"fine: 3, notes: 0, not looked at: 0, warnings: 0, faults: 1\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestClocks(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, trip time.Duration
		want        []string
	}{
		"right":            {50 * time.Millisecond, 0, nil},
		"slow network":     {2500 * time.Millisecond, 2 * time.Second, nil},
		"3 s ahead":        {3 * time.Second, 0, []string{"clock-skew"}},
		"3 s behind":       {-3 * time.Second, 0, []string{"clock-skew"}},
		"a minute behind":  {-time.Minute, time.Second, []string{"clock-wrong"}},
		"as far as it may": {2 * time.Second, 0, nil},
	} {
		e := &exam{}
		e.clock("x", c.ahead, c.trip)
		t.Run(name, func(t *testing.T) { wantIDs(t, e.report(), c.want...) })
	}
}
