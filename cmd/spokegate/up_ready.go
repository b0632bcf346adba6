package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

const readyPoll = 100 * time.Millisecond

// awaitReady waits until the door says that it is ready and Envoy answers, and tells what it waits for. It is false when ctx
// ends before.
func awaitReady(ctx context.Context, ops, url string) bool {
	// Whose certificate it is, the client will check; this asks only whether our own listener answers.
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	said := ""
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	for {
		missing := notReady(ctx, client, ops, url)
		if missing == "" {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-patience.C:
			if missing != said {
				say("waiting for: %s", missing)
				said = missing
			}
			patience.Reset(5 * time.Second)
		case <-time.After(readyPoll):
		}
	}
}

// notReady is empty when all is ready, else what is missing.
func notReady(ctx context.Context, client *http.Client, ops, url string) string {
	status, body, err := get(ctx, client, "http://"+ops+"/readyz")
	if err != nil {
		return "the door's process"
	}
	if status != http.StatusOK {
		var fails []string
		for line := range strings.Lines(body) {
			if why, ok := strings.CutPrefix(line, "FAIL "); ok {
				fails = append(fails, strings.TrimSpace(why))
			}
		}
		return strings.Join(fails, "; ")
	}
	// Without a key the door must answer, and must refuse.
	if status, _, err := get(ctx, client, url+"/v1/models"); err != nil || status != http.StatusUnauthorized {
		return "Envoy's listener"
	}
	return ""
}

func get(ctx context.Context, client *http.Client, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(body), err
}

// engineModels asks a running engine which models it serves.
func engineModels(ctx context.Context, url string) ([]string, error) {
	status, body, err := get(ctx, &http.Client{Timeout: 5 * time.Second}, strings.TrimSuffix(url, "/")+"/v1/models")
	if err != nil {
		return nil, fmt.Errorf("-attach %s: the engine does not answer: %w", url, err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &list); status != http.StatusOK || err != nil || len(list.Data) == 0 {
		return nil, fmt.Errorf("-attach %s: GET /v1/models answers %d and names no model; write a policy and pass it with -policy", url, status)
	}
	var names []string
	for _, m := range list.Data {
		if m.ID == "" {
			return nil, errors.New("-attach: the engine names a model without an id")
		}
		names = append(names, m.ID)
	}
	return names, nil
}

func modelNames(set *policyv1.Set) []string {
	var names []string
	for _, m := range set.GetModels() {
		names = append(names, m.GetName())
	}
	return names
}

// shellQuote makes a path safe to paste.
func shellQuote(s string) string {
	if strings.ContainsAny(s, " '\"$\\`!&;()<>|*?[]#~") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
