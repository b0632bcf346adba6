package main

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spokegate/spokegate/doctor"
)

// TestDoctorsFlagsAreDocumented: docs/doctor.md has each flag in its table, and no other.
func TestDoctorsFlagsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	new(doctorFlags).register(f)
	_, table, _ := strings.Cut(string(data), "| flag of `doctor` |")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(first, -1) {
			if told = append(told, m[1]); f.Lookup(m[1]) == nil {
				t.Errorf("the table has -%s, which is no flag of doctor", m[1])
			}
		}
	}
	f.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(told, f.Name) {
			t.Errorf("the table lacks -%s: %s", f.Name, f.Usage)
		}
	})
}

// TestAboutTellsNoSecret: what a door was started with is told as it is in force, without passwords.
func TestAboutTellsNoSecret(t *testing.T) {
	var d doorFlags
	f := flag.NewFlagSet("door", flag.ContinueOnError)
	d.register(f)
	if err := f.Parse([]string{"-redis", "redis://user:hush@stores:6379/2", "-dir", "here", "-name", "d9"}); err != nil {
		t.Fatal(err)
	}
	if err := d.complete(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	aboutPage("door", d.name, d.spoke, sayFlags(f), nil).handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/about", nil))
	var a doctor.About
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.Body.String(), "hush") || a.Flags["redis"] != "redis://…@stores:6379/2" {
		t.Errorf("%s", w.Body.String())
	}
	if a.Role != "door" || a.Name != "d9" || !strings.HasPrefix(a.Flags["dir"], "/") || a.Flags["body-limit"] != "33554432" || a.At.IsZero() || a.Policy != nil {
		t.Errorf("%+v", a)
	}
}
