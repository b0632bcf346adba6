package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spokegate/spokegate/identity"
)

const (
	hashA = "adcff5304c82c314a545132f582743dc0156ca6808ca664633eb0684eaf6dd2a"
	hashB = "8c74598b7e84e122a1aae8b9e16ee681d63c5b93902696e7aa925c0860e5e920"
)

// TestParse tells what is said of files, in testdata/parse.txt. A and B stand for two hashes.
func TestParse(t *testing.T) {
	datadriven.RunTest(t, "testdata/parse.txt", func(t *testing.T, d *datadriven.TestData) string {
		src := strings.NewReplacer("$A", hashA, "$B", hashB, `\t`, "\t").Replace(d.Input)
		set, err := Parse("p.yaml", []byte(src))
		if err != nil {
			if set != nil {
				t.Error("a set beside an error")
			}
			return err.Error() + "\n"
		}
		return fmt.Sprintf("ok: %d models, %d endpoints, %d teams, %d keys\n",
			len(set.Models), len(set.Endpoints), len(set.Teams), len(Keys(set)))
	})
}

func TestParseRefusesBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		src, want string
	}{
		"not UTF-8":         {"models:\n  - \"\xff\"\n", "p.yaml:2:6: byte 0xff is not UTF-8"},
		"cut UTF-8":         {"# \xe2\x82", "p.yaml:1:3: byte 0xe2 is not UTF-8"},
		"byte order mark":   {"\xef\xbb\xbfmodels: []\n", "p.yaml:1:1: the file begins with a byte order mark; save it as UTF-8 without one"},
		"NUL":               {"models:\x00", "p.yaml:1:8: control character 0x00 is not allowed"},
		"empty":             {"", "p.yaml:1:1: the file is empty"},
		"blank":             {" \n\n", "p.yaml:1:1: the file is empty"},
		"comments only":     {"# hello\n", "p.yaml:1:1: the file is empty"},
		"too large":         {strings.Repeat("#", MaxFile+1), "p.yaml:1:1: the file has 16777217 bytes; a policy file may have 16777216"},
		"brackets too deep": {strings.Repeat("[", 100_000), "p.yaml:1:33: nested more than 32 levels deep"},
		"dashes too deep":   {strings.Repeat("- ", 100_000), "p.yaml:1:65: nested more than 32 levels deep"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Parse("p.yaml", []byte(tc.src))
			if err == nil || err.Error() != tc.want || set != nil {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// TestSecretsAreNotRepeated puts a key where a hash belongs, and wherever else it might be pasted.
func TestSecretsAreNotRepeated(t *testing.T) {
	secret, _ := identity.NewKey()
	for _, src := range []string{
		"keys: [{id: k, team: t, sha256: " + secret + "}]",
		"keys: [{id: k, team: t, sha256: \"" + secret + "x\"}]",
		"keys: [{id: k, team: t, sha256: [" + secret + "]}]",
		"keys: [{id: k, team: t, secret: " + secret + "}]",
		"keys: [{id: k, team: t, models: [\"" + secret + " \"]}]",
		"keys:\n  - id: k\n\tsha256: " + secret + "\n",
		"keys: [{id: k, sha256: \"" + secret,
		"keys: [{id: k, sha256: *" + secret + "}]",
	} {
		_, err := Parse("p.yaml", []byte(src))
		if err == nil || strings.Contains(err.Error(), secret[6:20]) {
			t.Errorf("%v", err)
		}
	}
}

func TestProblemsAreBoundedText(t *testing.T) {
	_, err := Parse("p.yaml", []byte("models:"+strings.Repeat("\n  - {}", 100)))
	ps := err.(Problems)
	if len(ps) < 100 {
		t.Errorf("%d problems of 100 bad entries", len(ps))
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxLines+1 || !strings.HasPrefix(lines[maxLines], "and ") {
		t.Errorf("%d lines: %s", len(lines), err)
	}
}

func TestDemo(t *testing.T) {
	src := Demo("sim", []string{"sim-small", "sim-large"}, hashA)
	set, err := Parse("demo", src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	if len(set.Models) != 2 || set.Models[1].Endpoint != "sim" || len(Keys(set)) != 1 {
		t.Errorf("%s", protojson.Format(set))
	}
	if Demo("no spaces", []string{"m"}, hashA) != nil || Demo("sim", []string{"a: b"}, hashA) != nil || Demo("sim", nil, hashA) != nil {
		t.Error("a demo policy that could not be read back")
	}
}

func FuzzParse(f *testing.F) {
	for _, path := range []string{"../examples/policy.yaml", "testdata/parse.txt"} {
		src, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
		for _, part := range strings.Split(string(src), "\n\n") {
			f.Add([]byte(part))
		}
	}
	for _, s := range []string{"", "- - -", "a: &x [*x]", "? {a: b}\n: c", "a: |\n", "{a: {b: [c,]}}", "%TAG\n---\n", "a: !!binary x", "\"\\u", "<<: {}", "[a, b]: c", "!!x", "&a", "*a", "models: !!map {}", "--- \n...\n---"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		set, err := Parse("p", src)
		if (set == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", set, err)
		}
		if err == nil {
			again, err := Parse("p", src)
			if err != nil || string(Digest(again)) != string(Digest(set)) {
				t.Fatal("a second reading differs")
			}
			return
		}
		for _, p := range err.(Problems) {
			if p.Line < 1 || p.Column < 1 || p.Text == "" || strings.ContainsAny(p.Error(), "\n\x1b") {
				t.Fatalf("%#v", p)
			}
		}
	})
}
