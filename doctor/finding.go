package doctor

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Severity is how bad a finding is.
type Severity string

const (
	OK         Severity = "ok"
	Note       Severity = "note"        // good to know; nothing has to be done
	CannotTell Severity = "cannot-tell" // it could not be looked at
	Warning    Severity = "warning"     // it works, and will not under load, after a failure, or soon
	Fault      Severity = "fault"       // requests fail, pass unchecked or uncounted, or somebody gets in who must not
)

var severities = []Severity{"", OK, Note, CannotTell, Warning, Fault}

func (s Severity) rank() int {
	for i, x := range severities {
		if x == s {
			return i
		}
	}
	return 0
}

func worse(a, b Severity) Severity {
	if a.rank() > b.rank() {
		return a
	}
	return b
}

// Area is what a finding is about. A report is in this order.
type Area string

var areas = []Area{"ports", "certificates", "clock", "envoy", "workers", "stores", "policy", "files", "request", "kubernetes", "doctor"}

func order(a Area) int {
	for i, x := range areas {
		if x == a {
			return i
		}
	}
	return len(areas)
}

// Finding is what one check saw in one place.
type Finding struct {
	ID       string   `json:"id"`
	Area     Area     `json:"area"`
	Severity Severity `json:"severity"`
	Where    string   `json:"where"`
	Saw      string   `json:"saw"`
	Wrong    string   `json:"wrong,omitempty"` // what that means; not where all is well
	Mend     string   `json:"mend,omitempty"`
}

func newFinding(id, where string, bad bool, format string, args ...any) Finding {
	k, known := kindOf(id)
	if !known { // a test holds every id in the code against the table
		return Finding{ID: id, Area: "doctor", Severity: CannotTell, Where: oneLine(where), Saw: "there is no such kind of finding"}
	}
	f := Finding{ID: id, Area: k.Area, Severity: OK, Where: oneLine(where), Saw: oneLine(fmt.Sprintf(format, args...))}
	if bad {
		f.Severity, f.Wrong, f.Mend = k.Severity, k.Wrong, k.Mend
	}
	return f
}

// mostSaid bounds what is repeated of what others say, in bytes.
const mostSaid = 400

// oneLine keeps what others say, names of theirs too, from spreading over a terminal, or turning around what stands in it.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > mostSaid {
		s = strings.ToValidUTF8(s[:mostSaid], "") + "…"
	}
	return s
}

// Report is all of a visit.
type Report struct {
	At       time.Time `json:"at"`
	Version  string    `json:"version"`
	Verdict  Severity  `json:"verdict"` // the worst of all
	Findings []Finding `json:"findings"`
}

// Status is the exit status of who asked: 0 where nothing is to be done, 1 with warnings or things that could not be looked at,
// 2 with faults.
func (r Report) Status() int {
	switch r.Verdict {
	case Fault:
		return 2
	case Warning, CannotTell:
		return 1
	}
	return 0
}

// Has says whether something of this kind was found.
func (r Report) Has(id string) bool {
	for _, f := range r.Findings {
		if f.ID == id && f.Severity != OK {
			return true
		}
	}
	return false
}
