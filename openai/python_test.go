package openai

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// python is a running testdata/read.py.
type python struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startPython(t testing.TB) *python {
	cmd := exec.Command("python3", "testdata/read.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("python3 is missing: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("python3: %v", err)
		}
	})
	return &python{in: in, out: bufio.NewReader(out)}
}

// reads returns what Python sees in a body.
func (p *python) reads(t testing.TB, op Op, body []byte) string {
	head := binary.BigEndian.AppendUint32([]byte{byte(op)}, uint32(len(body)))
	if _, err := p.in.Write(append(head, body...)); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", body, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// agrees says whether Scan accepts the body; if so it fails unless Python sees the same.
func (p *python) agrees(t testing.TB, op Op, body []byte) bool {
	r, err := Scan(op, body)
	if err != nil {
		return false
	}
	output, given := r.OutputAsked()
	flag := map[bool]string{true: "True", false: "False"}
	got := fmt.Sprintf("%x %s %s %s %d %d", r.Model, flag[r.Stream], flag[r.IncludeUsage], flag[given], output, r.Choices())
	if want := p.reads(t, op, body); got != want {
		t.Fatalf("%v %q\nwe read %s\npython  %s", op, body, got, want)
	}
	return true
}

// TestScanAgainstPython: of any body, either it is refused or Python reads the same model, flags and limits from it.
func TestScanAgainstPython(t *testing.T) {
	p := startPython(t)
	seeds := pythonSeeds(t)
	rng := rand.New(rand.NewPCG(11, 12))
	accepted, refused := 0, 0
	for range 12_000 {
		body := []byte(randomBody(rng))
		if rng.IntN(3) == 0 {
			body = []byte(seeds[rng.IntN(len(seeds))])
		}
		for range rng.IntN(3) {
			body = mutate(rng, body, seeds)
		}
		if p.agrees(t, Chat+Op(rng.IntN(5)), body) {
			accepted++
		} else {
			refused++
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 3000 || refused < 3000 {
		t.Errorf("%d accepted and %d refused prove little", accepted, refused)
	}
}

// TestPythonSees: the oracle is not blind. These bodies Scan refuses, and Python reads something else than Go would.
func TestPythonSees(t *testing.T) {
	p := startPython(t)
	for body, want := range map[string]string{
		`{"model":"m"}`: "6d False False False 0 1",
		`{"model":"dear","model":"m","n":2,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`: "6d True True True 10 2",
		`{"model":"m","Model":"dear","max_tokens":9223372036854775807,"n":128}`:                                   "6d False False True 9223372036854775807 128",
		"\uFEFF" + `{"mod\u0065l":"\ud83d"}`:                                                                      "eda0bd False False False 0 1",
		`{"model":"m","max_tokens":5.0}`:                                                                          "wrong: 'max_tokens is no count'",
		`{"model":"m","n":true}`:                                                                                  "wrong: 'n is no count'",
		`{"model":"m","stream":"false"}`:                                                                          "wrong: 'stream is no boolean'",
		`{"model":"m"} {}`:                                                                                        "wrong: 'Extra data: line 1 column 15 (char 14)'",
		`{"model":1}`:                                                                                             "wrong: 'no model'",
		`[]`:                                                                                                      "wrong: 'no object'",
	} {
		if got := p.reads(t, Chat, []byte(body)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func FuzzScanAgainstPython(f *testing.F) {
	for i, s := range pythonSeeds(f) {
		f.Add([]byte(s), uint8(i))
	}
	p := startPython(f)
	f.Fuzz(func(t *testing.T, body []byte, op uint8) { p.agrees(t, Chat+Op(op%5), body) })
}

func pythonSeeds(t testing.TB) []string {
	seeds := []string{
		`{"model":"m","messages":[{"role":"user","content":"h\u00e9\ud83d\ude00"}],"stream":true,"stream_options":{"include_usage":true},"n":2,"max_tokens":5}`,
		`{"model":"m","prompt":["a",[1,2],"b"],"n":2,"best_of":3,"max_tokens":7}`,
		`{"model":"a/b","input":[[1,2],[3]],"max_output_tokens":12,"stream":false,"stream_options":null}`,
		`{"model":"m","max_completion_tokens":9,"max_tokens":4,"metadata":{"model":"x","n":[1.5e3,-0,null,true]}}`,
	}
	for _, c := range loadCases[requestCase](t, "requests.yaml") {
		if c.Sent != nil {
			seeds = append(seeds, *c.Sent)
		}
	}
	return seeds
}

var (
	pythonNames = []string{"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "n",
		"best_of", "prompt", "input", "messages", "metadata", "seed", "x"}
	pythonValues = []string{`"m"`, `"a\/b"`, `"\u006d\ud83d\ude00"`, `"\ud83d"`, `"é"`, `""`, `null`, `true`, `false`, `0`, `1`, `2`, `17`,
		`128`, `129`, `-1`, `-0`, `5.0`, `1e2`, `9007199254740993`, `9223372036854775807`, `9223372036854775808`, `01`, `NaN`, `Infinity`,
		`{}`, `[]`, `["a","b"]`, `[[1],[2,3],4]`, `{"include_usage":true}`, `{"include_usage":false}`, `{"include_usage":null}`,
		`{"include_usage":true,"include_usage":false}`, `{"include_obfuscation":true,"include_usag\u0065":true}`, `[{"model":"x"}]`}
	pythonBytes = []string{`"`, `\`, `{`, `}`, `[`, `]`, `:`, `,`, ` `, "\t", "\n", "\r", "\x00", "\x0b", "\x1f", "\x7f", "\xff", "\xc3", "\xed\xa0\x80",
		"\uFEFF", "\u00a0", "\u2028", `\u0000`, `\ud800`, `\udc00`, `\u017f`, `\u212a`, `\n`, `/**/`, `'`, `0`, `1`, `-`, `+`, `.`, `e`, `E`, `,"model":"m"`}
)

// randomBody is an object of members, most of which make sense.
func randomBody(rng *rand.Rand) string {
	fit := map[string][]string{"model": pythonValues[:3], "stream": {"true", "false", "null"}, "stream_options": {"null", "{}", pythonValues[29], pythonValues[30]}}
	parts := []string{`"model":` + fit["model"][rng.IntN(3)]}
	for range rng.IntN(5) {
		name := pythonNames[1+rng.IntN(len(pythonNames)-1)]
		values := fit[name]
		switch {
		case values == nil && strings.Contains(name, "max"), name == "n", name == "best_of":
			values = []string{"null", "1", "2", "17", "128"}
		case values == nil, rng.IntN(8) == 0:
			values = pythonValues
		}
		parts = append(parts, quotedSomehow(rng, name)+[]string{":", " : "}[rng.IntN(2)]+values[rng.IntN(len(values))])
	}
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, []string{",", "\n, "}[rng.IntN(2)]) + "}"
}

// quotedSomehow writes a name, now and then with a letter escaped, or in another case.
func quotedSomehow(rng *rand.Rand, name string) string {
	i := rng.IntN(len(name))
	switch rng.IntN(12) {
	case 0:
		name = name[:i] + fmt.Sprintf(`\u%04x`, name[i]) + name[i+1:]
	case 1:
		name = name[:i] + strings.ToUpper(name[i:i+1]) + name[i+1:]
	}
	return `"` + name + `"`
}

// mutate changes a body in one place.
func mutate(rng *rand.Rand, body []byte, seeds []string) []byte {
	if len(body) == 0 {
		return []byte(seeds[0])
	}
	at := rng.IntN(len(body))
	to := min(len(body), at+1+rng.IntN(8))
	switch rng.IntN(7) {
	case 0:
		return slices.Delete(slices.Clone(body), at, to)
	case 1:
		return slices.Insert(slices.Clone(body), at, body[at:to]...)
	case 2:
		body = slices.Clone(body)
		body[at] ^= 1 << rng.IntN(8)
		return body
	case 3: // the head of one, the tail of another
		other := seeds[rng.IntN(len(seeds))]
		return append(slices.Clone(body[:at]), other[rng.IntN(len(other)+1):]...)
	case 4: // white space where it may be
		return []byte(strings.Replace(string(body), ",", ", \n", 1+rng.IntN(2)))
	case 5:
		return slices.Insert(slices.Clone(body), at, []byte(pythonValues[rng.IntN(len(pythonValues))])...)
	}
	return slices.Insert(slices.Clone(body), at, []byte(pythonBytes[rng.IntN(len(pythonBytes))])...)
}
