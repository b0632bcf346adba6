package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spokegate/spokegate/hub/api"
)

// printDifferences writes what two states differ in: a line a thing, and below it a line each member that is another.
func printDifferences(out io.Writer, list []api.Difference) {
	for _, d := range list {
		mark := "~"
		switch {
		case len(d.Before) == 0:
			mark = "+"
		case len(d.After) == 0:
			mark = "-"
		}
		fmt.Fprintln(out, printable(strings.TrimSuffix(mark+" "+d.Kind+"/"+d.Name, "/")))
		if mark == "-" {
			continue // all of it
		}
		for _, line := range memberChanges("", parsed(d.Before), parsed(d.After)) {
			fmt.Fprintln(out, printable("    "+line))
		}
	}
}

func parsed(body json.RawMessage) (v any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	_ = d.Decode(&v) // nothing, or what the hub has checked
	return v
}

// memberChanges tells what was and what is, member by member, in order of their names.
func memberChanges(path string, before, after any) (lines []string) {
	b, isB := before.(map[string]any)
	a, isA := after.(map[string]any)
	if isA && (isB || before == nil) {
		names := map[string]bool{}
		for name := range maps.Keys(b) {
			names[name] = true
		}
		for name := range maps.Keys(a) {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			lines = append(lines, memberChanges(strings.TrimPrefix(path+"."+name, "."), b[name], a[name])...)
		}
		return lines
	}
	bl, isB := before.([]any)
	al, isA := after.([]any)
	if isA && isB && nested(bl) && nested(al) {
		for i := range max(len(bl), len(al)) {
			lines = append(lines, memberChanges(path+"["+strconv.Itoa(i)+"]", at(bl, i), at(al, i))...)
		}
		return lines
	}
	if encoded(before) == encoded(after) {
		return nil
	}
	was, is := brief(before), brief(after)
	if was == is { // a number, and a text that looks like it
		was, is = encoded(before), encoded(after)
	}
	switch {
	case before == nil:
		return []string{path + ": " + is}
	case after == nil:
		return []string{path + ": " + was + " → gone"}
	}
	return []string{path + ": " + was + " → " + is}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// nested says that a list holds objects, so that a change is in one of them.
func nested(list []any) bool {
	return slices.ContainsFunc(list, func(v any) bool { _, is := v.(map[string]any); return is })
}

// brief is a value on one line.
func brief(v any) string {
	if s, is := v.(string); is {
		return s
	}
	return encoded(v)
}

func encoded(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it was JSON
	return strings.TrimSpace(b.String())
}
