package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spokegate/spokegate/epp"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/policy"
	"github.com/spokegate/spokegate/router"
)

// pickerStatus is the page /epp: how the picker stands, endpoint by endpoint.
type pickerStatus struct {
	Picker    string         `json:"picker"`
	Version   string         `json:"version"`
	At        time.Time      `json:"at"`
	Endpoints []epp.Endpoint `json:"endpoints"`
}

// explanation is the answer of /epp/explain: what would be chosen. It has no word of the prompt.
type explanation struct {
	Model    string   `json:"model"`    // of an alias, the target
	Endpoint string   `json:"endpoint"` // that serves it
	Text     string   `json:"text"`     // how the prompt's text was rendered
	Workers  []string `json:"workers"`  // best first; empty: none takes it
	Refused  string   `json:"refused,omitempty"`
	Explain  string   `json:"explain"` // what each worker would cost
}

// pickerPages are for operators: who asks here has passed no key. What is sent to be explained is neither kept nor logged, and asking
// changes nothing; the pages are on loopback unless the operator says otherwise.
type pickerPages struct {
	picker    *epp.Picker
	policy    *policy.Current
	name      string
	bodyLimit int64
	only      string // the endpoint of all requests, whatever model they ask for; empty: that of the model
}

func (p pickerPages) pages() []page {
	return []page{{"GET /epp", http.HandlerFunc(p.status)}, {"POST /epp/explain", http.HandlerFunc(p.explain)}}
}

func (p pickerPages) status(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, pickerStatus{Picker: p.name, Version: buildVersion(), At: time.Now(), Endpoints: p.picker.Status()})
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked may have left
}

// explain answers what the picker would choose for the body of a request. Of the query, path is where it would be sent, model
// takes the place of the body's, session is of a team where a door admits, and of none elsewhere, and sheddable is as in the policy.
func (p pickerPages) explain(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, p.bodyLimit))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	ask := r.URL.Query()
	op, _, bad := openai.Route(http.MethodPost, ask.Get("path"))
	if bad != nil {
		http.Error(w, bad.Message, http.StatusBadRequest)
		return
	}
	req, bad := openai.Scan(op, body)
	if bad != nil {
		http.Error(w, bad.Message, http.StatusBadRequest)
		return
	}
	if named := ask.Get("model"); named != "" {
		req.Model = named
	}
	endpoint := p.only
	if endpoint == "" {
		model, err := p.model(req.Model)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		req.Model, endpoint = model.Name, model.Endpoint.Name
	}
	hints := router.Ask{ // as requests are picked for
		Session: router.SessionOf(ask.Get("team"), ask.Get("session")), Sheddable: ask.Get("sheddable") == "true",
		Split: req.Splittable(body), OneRank: p.only != "",
	}
	e := explanation{Model: req.Model, Endpoint: endpoint, Workers: []string{}}
	choice, text, err := p.picker.Would(r.Context(), time.Now(), e.Endpoint, hints, req, body)
	e.Text, e.Explain = text, choice.Explain()
	switch {
	case errors.Is(err, router.ErrNoWorker):
		e.Refused = "none is ready"
	case err != nil:
		e.Refused = err.Error()
	default:
		e.Workers = choice.Addrs
	}
	answerJSON(w, e)
}

// model finds what requests for a name go to; of an alias any one of its targets, as for a request.
func (p pickerPages) model(name string) (*policy.Model, error) {
	snap := p.policy.Load()
	if snap == nil {
		return nil, errors.New("there is no policy yet")
	}
	m := snap.Model(name)
	if m == nil {
		return nil, fmt.Errorf("the policy has no model %q", name)
	}
	if m = m.Resolve(rand.Uint64()); m == nil || m.Endpoint == nil {
		return nil, fmt.Errorf("no endpoint of this spoke serves the model %q", name)
	}
	return m, nil
}
