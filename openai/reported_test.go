package openai

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReported(t *testing.T) {
	meter := NewMeter(Chat, false)
	body := `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":300,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":400}}}`
	_, _ = meter.Write([]byte(body))
	said := Reported{Report: meter.Close(), Bytes: int64(len(body))}
	text := string(said.AppendText(nil))
	if want := "bytes=140 prompt=300 cached=300 completion=20 from=engine doubt=cached_above_prompt"; text != want {
		t.Fatalf("%q, want %q", text, want)
	}
	heard, ok := ParseReported(text)
	if diff := cmp.Diff(said, heard); !ok || diff != "" {
		t.Errorf("%v %s", ok, diff)
	}
}

// What no shim of ours writes is no report: then nothing is known, and that is said.
func TestReportedStrange(t *testing.T) {
	for _, text := range []string{
		"", "bytes=1", "bytes=-1 from=engine", "bytes=01 from=engine", "bytes=1 from=events", "bytes=1 from=engine failed=1",
		"bytes=1 from=engine from=none", "bytes=1 completion=2 prompt=1 from=engine", "bytes=1 prompt=1e3 from=engine",
		"bytes=1 prompt= from=engine", "bytes=1  from=engine", "bytes=1 from=engine doubt=me", "bytes=1 from=engine x=1",
		"bytes=99999999999999999999 from=engine", "from=engine bytes=1",
	} {
		if r, ok := ParseReported(text); ok {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}

func FuzzReported(f *testing.F) {
	f.Add("bytes=812 prompt=300 cached=3 completion=20 reasoning=2 from=engine failed doubt=bad_usage")
	f.Fuzz(func(t *testing.T, text string) {
		if r, ok := ParseReported(text); ok && string(r.AppendText(nil)) != text {
			t.Errorf("%q is written as %q", text, r.AppendText(nil))
		}
	})
}
