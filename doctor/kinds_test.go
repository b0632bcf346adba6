package doctor

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/doctor.md anew")

const (
	docs  = "../docs/doctor.md"
	begin = "| finding | severity | what it means | how to mend it |\n| --- | --- | --- | --- |\n"
)

// table is the catalogue as docs/doctor.md has it.
func table() string {
	var b strings.Builder
	for _, a := range areas {
		for _, k := range Kinds {
			if k.Area == a {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.ID, k.Severity, k.Wrong, k.Mend)
			}
		}
	}
	return b.String()
}

// TestEveryFindingIsDocumented holds the table in the documents against the one in the code.
func TestEveryFindingIsDocumented(t *testing.T) {
	data, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(data), begin)
	if !found {
		t.Fatalf("%s has no table that begins with\n%s", docs, begin)
	}
	told, tail, _ := strings.Cut(rest, "\n\n")
	if told+"\n" == table() {
		return
	}
	if !*rewrite {
		t.Fatalf("%s and the code differ: go test ./doctor -run Documented -rewrite", docs)
	}
	if err := os.WriteFile(docs, []byte(head+begin+table()+"\n"+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKindsAreWhole: each is of an area, once, with its meaning and its remedy.
func TestKindsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds {
		if seen[k.ID] || !slices.Contains(areas, k.Area) || k.Severity.rank() < Note.rank() || k.Wrong == "" || k.Mend == "" {
			t.Errorf("%+v", k)
		}
		if strings.ContainsAny(k.Wrong+k.Mend, "|\n") {
			t.Errorf("%s: it does not fit into a table", k.ID)
		}
		seen[k.ID] = true
	}
}

// TestEveryFindingHasAKind looks through the code for ids that are said, and for kinds that nothing says.
func TestEveryFindingHasAKind(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "kinds.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit: // the tables of kinds themselves
				if id, ok := n.Type.(*ast.ArrayType); ok {
					if name, ok := id.Elt.(*ast.Ident); ok && name.Name == "Kind" {
						return false
					}
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					texts[s] = true
				}
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != "found" && sel.Sel.Name != "say" || len(n.Args) == 0 {
					break
				}
				if lit, ok := n.Args[0].(*ast.BasicLit); ok {
					id, _ := strconv.Unquote(lit.Value)
					if _, known := kindOf(id); !known {
						t.Errorf("%s says %q, which is no kind", f, id)
					}
				}
			}
			return true
		})
	}
	for _, k := range Kinds {
		if !texts[k.ID] {
			t.Errorf("nothing says %s", k.ID)
		}
	}
}
