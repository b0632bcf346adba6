package envoy

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/openai"
)

// TestLuaAgrees: the script says by itself what a note begins with, how long it may be and where it is kept.
func TestLuaAgrees(t *testing.T) {
	found := regexp.MustCompile(`local mark, most = "\\n: (.*)", (\d+)\n`).FindStringSubmatch(notesLua)
	if found == nil {
		t.Fatal(notesLua)
	}
	if most, err := strconv.Atoi(found[2]); found[1] != openai.UsageComment || err != nil || most < openai.MaxNote {
		t.Errorf("mark %q, most %s", found[1], found[2])
	}
	if !strings.Contains(notesLua, `:set("`+OwnNamespace+`", "`+NoteHeader+`", note)`) {
		t.Error("it keeps notes elsewhere")
	}
}
