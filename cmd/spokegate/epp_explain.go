package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// explainPick asks a running picker what it would choose for a request. Nothing is booked, and nothing of the request is kept.
func explainPick(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("epp explain", flag.ContinueOnError)
	var at opsFlags
	at.register(f)
	model := f.String("model", "", "the `model` that is asked for (default: the body's)")
	file := f.String("file", "", "`file` with the body of the request (default: standard input)")
	path := f.String("path", "/v1/chat/completions", "where the request would be sent")
	session := f.String("session", "", "the request's x-session-id")
	team := f.String("team", "", "the `team` whose session it is: a door's sessions are each team's own. Of a standalone picker: empty")
	sheddable := f.Bool("sheddable", false, "as a key's that is refused first")
	output := f.String("o", "text", "text or json")
	if err := parse(f, args); err != nil {
		return err
	}
	if *output != "text" && *output != "json" {
		return fmt.Errorf("-o %q: want text or json", *output)
	}
	var body io.Reader = os.Stdin
	if *file != "" {
		opened, err := os.Open(*file)
		if err != nil {
			return err
		}
		defer opened.Close()
		body = opened
	}
	query := url.Values{"path": {*path}, "model": {*model}, "session": {*session}, "team": {*team}, "sheddable": {fmt.Sprint(*sheddable)}}
	ops, err := at.find()
	if err != nil {
		return err
	}
	text, err := postBody(ctx, "http://"+ops+"/epp/explain?"+query.Encode(), body)
	if err != nil {
		return err
	}
	var e explanation
	if err := json.Unmarshal(text, &e); err != nil || e.Endpoint == "" {
		return fmt.Errorf("what answers at %s has no picker", ops)
	}
	if *output == "json" {
		_, err = os.Stdout.Write(text)
	} else {
		err = e.print(os.Stdout)
	}
	if err == nil && e.Refused != "" {
		return fmt.Errorf("no worker takes it: %s", e.Refused)
	}
	return err
}

// postBody gives the answer of a page, or what it says is wrong.
func postBody(ctx context.Context, page string, body io.Reader) ([]byte, error) {
	client := &http.Client{Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, page, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no picker answers; is it running? %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the picker answers %d: %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return text, nil
}

func (e explanation) print(out io.Writer) error {
	text := e.Text
	if text == "unknown" {
		text = "not rendered, for no worker announces what it holds"
	}
	_, err := fmt.Fprintf(out, "model %s, endpoint %s; the prompt's text: %s\n%s", e.Model, e.Endpoint, text, e.Explain)
	return err
}
