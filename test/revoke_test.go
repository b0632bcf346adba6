package test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// goOn is a request that no test waits for.
const goOn = `{"model":"cheap","max_tokens":100000,"messages":[{"role":"user","content":"go on"}]}`

// runs opens a stream and wants to see some of it.
func (u *up) runs(t *testing.T, credential, body string) *stream {
	t.Helper()
	s, err := u.openStream(context.WithoutCancel(t.Context()), post(credential, "/v1/chat/completions", streamed(body), fromStranger()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.cut)
	if err := s.until("data:", 3); err != nil || s.resp.StatusCode != http.StatusOK {
		t.Fatalf("%d: %v", s.resp.StatusCode, err)
	}
	return s
}

// revoke revokes a key by the command, and waits until it is refused.
func (u *up) revoke(t *testing.T, credential string, args ...string) {
	t.Helper()
	out, errs, code := spokegate(t, append([]string{"policy", "revoke", "-dir", u.dir}, args...)...)
	if code != 0 || errs != "" || !strings.Contains(out, "revoked: ") {
		t.Fatalf("exit code %d, %s%s", code, out, errs)
	}
	u.becomes(t, credential, http.StatusUnauthorized)
}

// becomes waits until a credential is answered so. A second is what is promised; a slow machine has more.
func (u *up) becomes(t *testing.T, credential string, status int) {
	t.Helper()
	began := time.Now()
	eventually(t, factPatience, func() error {
		if r := u.asks(t, credential); r.status != status {
			return fmt.Errorf("want %d, got %v", status, r)
		}
		return nil
	})
	t.Logf("%d after %v", status, time.Since(began).Round(time.Millisecond))
}

// TestRevoke revokes keys on the spoke alone, while they are used.
func TestRevoke(t *testing.T) {
	t.Parallel()
	u := company(t)
	t.Run("what runs is cut", u.revokeCuts)
	t.Run("so is a subject's", u.revokeSubject)
	t.Run("or may finish", u.revokeLetsFinish)
}

func (u *up) revokeCuts(t *testing.T) {
	other, cut := u.runs(t, u.key("stays"), goOn), u.runs(t, u.key("gone"), goOn)
	answered := make(chan reply, 1)
	go func() { // one that has got nothing yet
		ctx, cancel := context.WithTimeout(context.Background(), callPatience)
		defer cancel()
		r, _ := sendHTTP2(ctx, u.listen, post(u.key("gone"), "/v1/chat/completions", goOn, fromStranger()))
		answered <- r
	}()
	eventually(t, factPatience, func() error {
		running := slices.DeleteFunc(u.ledger.open(), func(r *usagev1.Record) bool { return r.GetKey() != "gone" })
		if len(running) != 2 {
			return fmt.Errorf("want two requests of it running, got %v", running)
		}
		return nil
	})
	u.revoke(t, u.key("gone"), "gone")
	if err := cut.until(`"upstream_cut"`, 1); err != nil {
		t.Fatal(err)
	}
	if last := cut.read[len(cut.read)-1]; !strings.Contains(last, "key was revoked") {
		t.Errorf("the client is told %s", last)
	}
	rec := u.wasRevoked(t, cut.admission())
	if n := rec.GetCompletionTokens(); rec.GetOutcome() != usage.OutcomeUpstreamCut || rec.GetStatus() != http.StatusOK || n < 3 || n > 90_000 {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	whole := <-answered
	wantRefusal(t, whole, "", http.StatusUnauthorized, "invalid_api_key")
	if rec := u.wasRevoked(t, whole.admission()); rec.GetStatus() != http.StatusUnauthorized {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	if err := other.until("data:", 20); err != nil {
		t.Errorf("another key's stream: %v", err)
	}
	other.cut()

	out, _, code := spokegate(t, "policy", "revoke", "-dir", u.dir, "-list")
	if code != 0 || !strings.Contains(out, "gone") {
		t.Errorf("-list: exit code %d, %s", code, out)
	}
	u.opsSays(t, "/readyz", "note policy: 1 keys are revoked on this spoke alone")
	if out, errs, code := spokegate(t, "policy", "revoke", "-dir", u.dir, "-undo", "gone"); code != 0 {
		t.Fatalf("-undo: exit code %d, %s%s", code, out, errs)
	}
	u.becomes(t, u.key("gone"), http.StatusOK)
}

// wasRevoked waits for the usage record, which must say why it ended.
func (u *up) wasRevoked(t *testing.T, admission string) *usagev1.Record {
	t.Helper()
	rec := u.ledger.usage(t, admission)
	if !slices.Contains(rec.GetAnomalies(), "revoked") {
		t.Errorf("no anomaly says that the key was revoked: %s", usage.AppendJSON(nil, rec))
	}
	return rec
}

func (u *up) revokeSubject(t *testing.T) {
	bob, carl := u.token(t, "rsa", jwt.MapClaims{"sub": "bob"}), u.token(t, "rsa", jwt.MapClaims{"sub": "carl"})
	s := u.runs(t, bob, goOn)
	u.revoke(t, bob, "-issuer", "corp", "bob")
	if err := s.until(`"upstream_cut"`, 1); err != nil {
		t.Fatal(err)
	}
	if rec := u.wasRevoked(t, s.admission()); rec.GetKey() != "corp:bob" {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
	if r := u.asks(t, carl); r.status != http.StatusOK {
		t.Errorf("somebody else: %v", r)
	}
}

// revokeLetsFinish says in the policy that what runs may end by itself.
func (u *up) revokeLetsFinish(t *testing.T) {
	u.policy.set("newest", "team: t1")
	u.policy.setHead(companyPolicy(u.idp.path, "finish").head)
	u.rewrite(t, u.policy.yaml())
	u.becomes(t, u.key("newest"), http.StatusOK)
	s := u.runs(t, u.key("finishes"), strings.Replace(goOn, "100000", "2400", 1)) // eight seconds
	u.revoke(t, u.key("finishes"), "finishes")
	if e := u.ledger.get(s.admission()); len(e.usage) > 0 {
		t.Logf("the stream had ended before its key was revoked, which proves nothing")
	}
	if err := s.until("[DONE]", 1); err != nil {
		t.Fatal(err)
	}
	rec := u.ledger.usage(t, s.admission())
	if rec.GetOutcome() != usage.OutcomeComplete || rec.GetCompletionTokens() != 2400 || len(rec.GetAnomalies()) > 0 {
		t.Errorf("the usage record is %s", usage.AppendJSON(nil, rec))
	}
}
