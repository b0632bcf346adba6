package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spokegate/spokegate/hub/api"
)

// noun is a kind of thing, as commands name it.
type noun struct {
	word   string
	heads  string
	row    func(body map[string]any) []string
	create func(f *flag.FlagSet) func(name string) map[string]any // its flags, and the body that they make; nil: there is none
}

func (n noun) shelf() string { return "/v1/" + n.word + "s" }

func (n noun) path(name string) string { return n.shelf() + "/" + url.PathEscape(name) }

var nouns = map[string]noun{
	"team": {"team", "TEAM MODELS LIMITS", func(b map[string]any) []string {
		return []string{words(b["models"]), limitWords(b["limits"])}
	}, teamFlags},
	"model": {"model", "MODEL ENDPOINT TARGETS LIMITS", func(b map[string]any) []string {
		return []string{word(b["endpoint"]), targetWords(b["targets"]), limitWords(b["limits"])}
	}, modelFlags},
	"endpoint": {"endpoint", "ENDPOINT SPOKE PLACED FIELDS", func(b map[string]any) []string {
		return []string{word(b["spoke"]), word(b["placed"]), words(b["allow_fields"])}
	}, endpointFlags},
	"issuer": {"issuer", "ISSUER CLAIM TEAMS LIMITS", func(b map[string]any) []string {
		return []string{word(b["issuer"]), words(b["teams"]), limitWords(b["limits"])}
	}, nil},
	"spoke": {"spoke", "SPOKE LABELS", func(b map[string]any) []string { return []string{labelWords(b["labels"])} }, spokeFlags},
}

// runNoun is the command of a kind of things.
func runNoun(word string, more map[string]role) role {
	n := nouns[word]
	subs := map[string]role{"list": n.list, "show": n.show, "apply": n.apply, "delete": n.delete}
	if n.create != nil {
		subs["create"] = n.make
	}
	for name, sub := range more {
		subs[name] = sub
	}
	return func(ctx context.Context, args []string) error {
		sub, rest, err := pickSub(word, args, subs)
		if err != nil {
			return err
		}
		return sub(ctx, rest)
	}
}

func (n noun) list(ctx context.Context, args []string) error {
	c, _, err := hubCommand(n.word+" list", args, nil)
	if err != nil {
		return err
	}
	return n.printAll(ctx, c, url.Values{})
}

func (n noun) printAll(ctx context.Context, c *hubClient, query url.Values) error {
	list, err := all[api.Object](ctx, c, n.shelf(), query)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(list)
	}
	var rows [][]string
	for _, o := range list {
		body, _ := parsed(o.Body).(map[string]any)
		rows = append(rows, append(append([]string{o.Name}, n.row(body)...), strconv.FormatUint(o.Revision, 10), day(o.Updated)))
	}
	return table(os.Stdout, n.heads+" REVISION CHANGED", rows)
}

// day is a moment for people, in UTC as everything here.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func (n noun) show(ctx context.Context, args []string) error {
	c, given, err := hubCommand(n.word+" show", args, nil, "NAME")
	if err != nil {
		return err
	}
	return showThing(ctx, c, n.path(given[0]))
}

// showThing prints a thing as a policy file would have it, so that it can be changed and applied.
func showThing(ctx context.Context, c *hubClient, path string) error {
	var o api.Object
	if err := c.ask(ctx, http.MethodGet, path, nil, &o); err != nil {
		return err
	}
	if c.json {
		return printJSON(o)
	}
	text, err := yaml.JSONToYAML(o.Body)
	if err != nil {
		return err
	}
	fmt.Printf("# %s %s, of revision %d, %s\n%s", o.Kind, printable(o.Name), o.Revision, day(o.Updated), text)
	return nil
}

// make creates a thing that is not there yet.
func (n noun) make(ctx context.Context, args []string) error {
	var message string
	var body func(string) map[string]any
	c, given, err := hubCommand(n.word+" create", args, func(f *flag.FlagSet) { messageFlag(f, &message); body = n.create(f) }, "NAME")
	if err != nil {
		return err
	}
	return c.put(ctx, n.path(given[0]), body(given[0]), message, "If-None-Match", "*")
}

// put makes or changes a thing, and says so.
func (c *hubClient) put(ctx context.Context, path string, body any, message string, condition ...string) error {
	var done api.Changed
	if err := c.ask(ctx, http.MethodPut, path+withMessage(message), body, &done, condition...); err != nil {
		return err
	}
	return c.said(done)
}

func withMessage(message string) string {
	if message == "" {
		return ""
	}
	return "?message=" + url.QueryEscape(message)
}

// said tells what a change has become.
func (c *hubClient) said(done api.Changed) error {
	if c.json {
		return printJSON(done)
	}
	fmt.Printf("revision %d\n", done.Revision.Number)
	return nil
}

// apply makes or changes what a file has: one thing, or a list of them.
func (n noun) apply(ctx context.Context, args []string) error {
	var message, file string
	c, _, err := hubCommand(n.word+" apply", args, func(f *flag.FlagSet) {
		messageFlag(f, &message)
		f.StringVar(&file, "f", "", "`file` with the thing as a policy file has it, or a list of them; -: standard input")
	})
	if err != nil {
		return err
	}
	bodies, err := readBodies(n.word+" apply", file)
	if err != nil {
		return err
	}
	b := api.Batch{Message: message}
	for i, body := range bodies {
		var head struct{ Name, ID string }
		if err := json.Unmarshal(body, &head); err != nil || head.Name+head.ID == "" {
			return fmt.Errorf("%s: entry %d does not say which %s it is", file, i+1, n.word)
		}
		b.Changes = append(b.Changes, api.Change{Kind: n.word, Name: cmp.Or(head.Name, head.ID), Body: body})
	}
	return c.batch(ctx, b)
}

// batch makes changes as one revision.
func (c *hubClient) batch(ctx context.Context, b api.Batch) error {
	var r api.Revision
	if err := c.ask(ctx, http.MethodPost, "/v1/batch", b, &r); err != nil {
		return err
	}
	return c.saidRevision(r)
}

func (c *hubClient) saidRevision(r api.Revision) error {
	if c.json {
		return printJSON(r)
	}
	fmt.Printf("revision %d\n", r.Number)
	return nil
}

// readBodies reads things in YAML, of which JSON is a part.
func readBodies(command, file string) (list []json.RawMessage, err error) {
	if file == "" {
		return nil, misused(command, "-f is missing: the file with what to apply, or - for standard input")
	}
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return []json.RawMessage{text}, nil
	}
	return list, json.Unmarshal(text, &list)
}

func (n noun) delete(ctx context.Context, args []string) error {
	var message string
	c, given, err := hubCommand(n.word+" delete", args, func(f *flag.FlagSet) { messageFlag(f, &message) }, "NAME")
	if err != nil {
		return err
	}
	var done api.Changed
	if err := c.ask(ctx, http.MethodDelete, n.path(given[0])+withMessage(message), nil, &done, "If-Match", "*"); err != nil {
		return err
	}
	return c.said(done)
}

func word(v any) string {
	s, _ := v.(string)
	return s
}

// words are a list on one line.
func words(v any) string {
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = brief(x)
	}
	return strings.Join(out, " ")
}
