package test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/spokegate/spokegate/usage"
)

// noteRequestID keeps the x-request-id of the last response.
func noteRequestID(id *string) option.Middleware {
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		resp, err := next(r)
		if resp != nil {
			*id = resp.Header.Get("X-Request-Id")
		}
		return resp, err
	}
}

// pythonResults is what test/clients/openai_sdk.py prints.
type pythonResults struct {
	Chat, Completion, Response struct {
		Text       string
		Completion int
		RequestID  string `json:"request_id"`
	}
	Stream struct {
		Text       string
		Chunks     int
		Completion int
		RequestID  string `json:"request_id"`
	}
	Left struct {
		Chunks    int
		RequestID string `json:"request_id"`
	}
	ResponseStream struct {
		Text  string
		Types []string
	} `json:"response_stream"`
	Embeddings []int
	Models     []string
	Errors     map[string]struct {
		Class, Code string
		Status      int
		RequestID   string `json:"request_id"`
	}
}

// TestPythonSDK uses the official Python client, which closes its connection at [DONE] without reading on.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	eachPicker(t, func(t *testing.T, picker string) {
		u := simulated(t, picker)
		got := runPython(t, u)
		for name, r := range map[string]struct {
			Text       string
			Completion int
			RequestID  string `json:"request_id"`
		}{"chat": got.Chat, "completion": got.Completion, "response": got.Response} {
			if r.Text == "" || r.Completion != 16 {
				t.Errorf("%s: %+v", name, r)
			}
			if rec := u.ledger.usage(t, r.RequestID); rec.GetOutcome() != usage.OutcomeComplete || rec.GetCompletionTokens() != 16 {
				t.Errorf("%s: the usage record is %s", name, usage.AppendJSON(nil, rec))
			}
		}
		if got.Stream.Text != got.Chat.Text || got.Stream.Chunks < 3 || got.Stream.Completion != 16 {
			t.Errorf("stream: %+v, whole: %+v", got.Stream, got.Chat)
		}
		if rec := u.ledger.usage(t, got.Stream.RequestID); rec.GetOutcome() != usage.OutcomeComplete || rec.GetCompletionTokens() != 16 {
			t.Errorf("a stream closed at [DONE] is journaled as %s", usage.AppendJSON(nil, rec))
		}
		if rec := u.ledger.usage(t, got.Left.RequestID); rec.GetOutcome() != usage.OutcomeClientCut || rec.GetCompletionTokens() < 3 || rec.GetCompletionTokens() >= longTokens {
			t.Errorf("a stream closed midway is journaled as %s", usage.AppendJSON(nil, rec))
		}
		if n := len(got.ResponseStream.Types); n == 0 || got.ResponseStream.Text != got.Response.Text {
			t.Errorf("response stream: %+v", got.ResponseStream)
		}
		if len(got.Embeddings) != 2 || got.Embeddings[0] == 0 || len(got.Models) != 2 {
			t.Errorf("embeddings %v, models %v", got.Embeddings, got.Models)
		}
		for name, want := range map[string]struct {
			class, code string
			status      int
		}{
			"bad_key":     {"AuthenticationError", "invalid_api_key", 401},
			"not_allowed": {"PermissionDeniedError", "model_not_allowed", 403},
			"not_found":   {"NotFoundError", "model_not_found", 404},
			"bad_body":    {"BadRequestError", "invalid_body", 400},
			"rate":        {"RateLimitError", "rate_limit_exceeded", 429},
		} {
			e := got.Errors[name]
			if e.Class != want.class || e.Code != want.code || e.Status != want.status || e.RequestID == "" {
				t.Errorf("%s: want %v, got %+v", name, want, e)
			}
		}
	})
}

func runPython(t *testing.T, u *up) pythonResults {
	t.Helper()
	python := filepath.Join(lab.root, ".tools", "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatal("the Python client is missing: run `make e2e`, which installs test/clients/requirements.txt into .tools/venv")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("clients", "openai_sdk.py"))
	cmd.Env = append(os.Environ(), "SPOKEGATE_URL=http://"+u.listen, "SPOKEGATE_KEY="+u.key("main"),
		"SPOKEGATE_KEY_SMALL="+u.key("small-only"), "SPOKEGATE_KEY_RATED="+u.key("rated-py"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var r pythonResults
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r
}
