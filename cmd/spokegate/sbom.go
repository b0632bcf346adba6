package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
)

// bom is a bill of materials in CycloneDX 1.6: what a binary says of itself, so that it is right for whichever build. It has no
// time and no random number: equal binaries give equal bytes.
type bom struct {
	Format     string         `json:"bomFormat"`
	Spec       string         `json:"specVersion"`
	Version    int            `json:"version"`
	Metadata   bomMetadata    `json:"metadata"`
	Components []bomComponent `json:"components"`
}

type bomMetadata struct {
	Component bomComponent `json:"component"`
}

type bomComponent struct {
	Type    string    `json:"type"`
	Ref     string    `json:"bom-ref"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Hashes  []bomHash `json:"hashes,omitempty"`
	PURL    string    `json:"purl"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// writeBOM writes the bill of materials of a binary.
func writeBOM(w io.Writer, info *debug.BuildInfo, version string) error {
	b := bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Component = bomOf("application", info.Main.Path, version)
	b.Components = []bomComponent{bomOf("library", "std", strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := bomOf("library", m.Path, m.Version)
		if m.Sum != "" {
			sum, err := sumHash(m.Sum)
			if err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
			c.Hashes = []bomHash{{"SHA-256", sum}}
		}
		b.Components = append(b.Components, c)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(b)
}

func bomOf(kind, path, version string) bomComponent {
	purl := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	return bomComponent{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

// sumHash is a module's sum, as in go.sum, the way CycloneDX writes a hash.
func sumHash(sum string) (string, error) {
	text, ok := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%q is no sum of a module", sum)
	}
	return hex.EncodeToString(raw), nil
}
