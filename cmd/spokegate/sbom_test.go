package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// TestBillOfMaterials of this test's own binary: every module of it, with the sum that go.sum has.
func TestBillOfMaterials(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("a binary without build information")
	}
	var first, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &again} {
		if err := writeBOM(w, info, "v1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != again.String() {
		t.Error("twice the same is not the same")
	}
	var b bom
	if err := json.Unmarshal(first.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.PURL != "pkg:golang/github.com/spokegate/spokegate@v1.2.3" {
		t.Errorf("%+v", b.Metadata)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bomComponent{}
	for _, c := range b.Components {
		listed[c.Name] = c
	}
	if len(listed) != len(info.Deps)+1 || listed["std"].Version == "" {
		t.Errorf("%d components, of %d modules and Go's own library", len(listed), len(info.Deps))
	}
	for _, m := range info.Deps {
		c := listed[m.Path]
		if c.Version != m.Version || len(c.Hashes) != 1 {
			t.Errorf("%s: %+v", m.Path, c)
			continue
		}
		raw, err := hex.DecodeString(c.Hashes[0].Content)
		line := m.Path + " " + m.Version + " h1:" + base64.StdEncoding.EncodeToString(raw) + "\n"
		if err != nil || !strings.Contains(string(sums), line) {
			t.Errorf("go.sum has no %q", line)
		}
	}
	if c := bomOf("library", "a/b", "v1.0.0+incompatible"); c.PURL != "pkg:golang/a/b@v1.0.0%2Bincompatible" {
		t.Error(c.PURL)
	}
	for _, wrong := range []string{"", "h1:", "h2:AAAA", "h1:?"} {
		if _, err := sumHash(wrong); err == nil {
			t.Errorf("%q is taken for a sum", wrong)
		}
	}
}
