package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"
)

// parseMixed is parse for flags on either side of the arguments, as people type them: limit set team/web -concurrency 5. A name
// in brackets need not be given.
func parseMixed(f *flag.FlagSet, args []string, names ...string) (given []string, err error) {
	synopsis := explain(f, names...)
	for {
		if err := explained(f, synopsis, f.Parse(args)); err != nil {
			return nil, err
		}
		rest := f.Args()
		if len(rest) == 0 {
			break
		}
		if i := len(args) - len(rest) - 1; i >= 0 && args[i] == "--" { // what follows is no flag, whatever it looks like
			given = append(given, rest...)
			break
		}
		given, args = append(given, rest[0]), rest[1:]
	}
	switch {
	case len(given) > len(names):
		fmt.Fprintf(os.Stderr, "unexpected argument: %s\n", given[len(names)])
	case len(given) < len(names) && names[len(given)][0] != '[':
		fmt.Fprintf(os.Stderr, "missing argument: %s\n", names[len(given)])
	default:
		return given, nil
	}
	fmt.Fprintln(os.Stderr, synopsis)
	return nil, errUsage
}

// hubCommand is one that asks the hub: its flags are read, and its files, before it does anything.
func hubCommand(name string, args []string, more func(*flag.FlagSet), arguments ...string) (*hubClient, []string, error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	var h askFlags
	h.register(f)
	if more != nil {
		more(f)
	}
	given, err := parseMixed(f, args, arguments...)
	if err != nil {
		return nil, nil, err
	}
	if h.output != "text" && h.output != "json" {
		return nil, nil, misused(name, "-o %q: want text or json", h.output)
	}
	c, err := h.open()
	return c, given, err
}

// misused tells what is wrong with a command line that could be parsed.
func misused(name, format string, args ...any) error {
	fmt.Fprintf(os.Stderr, "spokegate "+name+": "+format+"\n", args...)
	return errUsage
}

// messageFlag adds -m.
func messageFlag(f *flag.FlagSet, m *string) {
	f.StringVar(m, "m", "", "`why`, for the revision and the audit log")
}

// pairs are words of the form name=value, of a flag that may be given several times.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(s string) error {
	name, value, is := strings.Cut(s, "=")
	if !is || name == "" {
		return errors.New("want NAME=VALUE")
	}
	p[name] = value
	return nil
}

// table prints rows under their heads, in columns.
func table(out io.Writer, head string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(head, " ", "\t"))
	for _, r := range rows {
		for i, cell := range r {
			if r[i] = printable(cell); cell == "" {
				r[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// printJSON is -o json: indented, and without escapes that are meant for HTML.
func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printable keeps what others wrote, in messages and labels, from changing a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
