package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// checkRequest makes one real request through each door, where a key was given for that.
func checkRequest(ctx context.Context, e *exam) {
	if e.Key == "" {
		return
	}
	if len(e.of("door")) == 0 {
		e.found("request-no-door", "doctor", "none of the processes that were asked is a door")
	}
	for _, d := range e.of("door") {
		at := d.clientsAddress()
		if onLoopback(at) && !d.here {
			continue
		}
		if !d.mayHaveKey(at) {
			e.found("request-elsewhere", d.where(), "its pages are at %s, and say that clients come to %s", d.ops, at)
			continue
		}
		id, err := e.request(ctx, d, at)
		e.say("request-failed", d.where(), err != nil, "%s: %s", at, orNil(err, "one token was answered"))
		if err == nil {
			said, err := metered(ctx, d, id)
			e.say("request-unmetered", d.where(), err != nil, "%s", orNil(err, said))
		}
	}
}

// request asks for one token, and gives the admission's id.
func (e *exam) request(ctx context.Context, d *process, at string) (string, error) {
	who, err := d.trusted(at)
	if err != nil {
		return "", err
	}

	header := http.Header{"Authorization": {"Bearer " + e.Key}, "Content-Type": {"application/json"}}
	model := e.Model
	if model == "" {
		var list struct{ Data []struct{ ID string } }
		a, err := sendTo(ctx, who, at, http.MethodGet, "/v1/models", header, nil)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(a.body, &list); err != nil || a.status != http.StatusOK || len(list.Data) == 0 {
			return "", fmt.Errorf("/v1/models answers %d%s, and no model that the key may use", a.status, code(a))
		}
		model = list.Data[0].ID
	}
	body, err := json.Marshal(map[string]any{"model": model, "max_tokens": 1, "messages": []map[string]string{{"role": "user", "content": "Say one word."}}})
	if err != nil {
		return "", err
	}
	a, err := sendTo(ctx, who, at, http.MethodPost, "/v1/chat/completions", header, strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	id := a.header.Get("X-Request-Id")
	if a.status != http.StatusOK {
		return "", fmt.Errorf("model %s: answered %d%s, x-request-id %s", model, a.status, code(a), id)
	}
	return id, nil
}

// mayHaveKey: pages have no certificate and may be anybody's, so they do not say to which other host a key goes.
func (p *process) mayHaveKey(at string) bool {
	return p.here && isHere(at) || host(at) == host(p.ops)
}

// trusted is whom the key may be sent to: on this machine who has the door's own certificate, elsewhere who is vouched for.
func (p *process) trusted(at string) (*tls.Config, error) {
	if p.flag("tls-cert") == "" || !p.here {
		return &tls.Config{ServerName: host(at)}, nil
	}
	pair, err := tls.LoadX509KeyPair(p.path("tls-cert"), p.path("tls-key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	who := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	switch {
	case len(pair.Leaf.DNSNames) > 0:
		who.ServerName = strings.Replace(pair.Leaf.DNSNames[0], "*", "any", 1)
	case len(pair.Leaf.IPAddresses) > 0:
		who.ServerName = pair.Leaf.IPAddresses[0].String()
	}
	return who, nil
}

// code is that of an error body.
func code(a answer) string {
	n, _ := parseNode(a.body)
	if c := n.at("error", "code").text(); c != "" {
		return " " + c
	}
	return ""
}

// errSeen ends the reading of a journal.
var errSeen = errors.New("seen")

// metered waits for the usage record of an admission: in the journal itself where that is on this machine, else by the door's
// count of records.
func metered(ctx context.Context, d *process, id string) (said string, err error) {
	if !d.here || d.path("dir") == "" {
		return countedBy(ctx, d)
	}
	spool := d.path("dir") + "/spool"
	for {
		_, err := usage.Read(spool, func(r *usagev1.Record) error {
			if r.GetId() != id+"/"+usage.KindUsage {
				return nil
			}
			said = fmt.Sprintf("usage %s: %d prompt, %d completion tokens, counted from %s", id, r.GetPromptTokens(), r.GetCompletionTokens(), r.GetCountedFrom())
			if r.PromptTokens == nil || r.CompletionTokens == nil {
				said = ""
			}
			return errSeen
		})
		switch {
		case errors.Is(err, errSeen) && said == "":
			return "", fmt.Errorf("its usage record %s has no tokens", id)
		case errors.Is(err, errSeen):
			return said, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no usage record of %s in %s", id, spool)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// countedBy is for a door elsewhere: its journal cannot be read, but it tells how many records it has.
func countedBy(ctx context.Context, d *process) (string, error) {
	page, err := metrics(ctx, d.ops, "/metrics", "spokegate_usage_records_total")
	if err != nil {
		return "", err
	}
	n := sum(page, "spokegate_usage_records_total", "kind", usage.KindUsage)
	if n == 0 {
		return "", errors.New("the door has written no usage record at all")
	}
	return fmt.Sprintf("the door has written %.0f usage records; whose they are is seen on its machine alone", n), nil
}
