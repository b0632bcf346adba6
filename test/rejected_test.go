package test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/identity"
	"github.com/spokegate/spokegate/usage"
)

const (
	pricedModel  = `{name: sim-small, endpoint: sim, price: {currency: USD, input: "1.25", cached: 0.125, output: 10}}`
	dearerModel  = `{name: sim-small, endpoint: sim, price: {currency: EUR, input: 2, output: "20.000001"}}`
	wrongKeys    = 2000
	wrongAtOnce  = 100
	refusalsSoon = 3 // records that the first refusals alike get in each second
)

func pricedPolicy() *policyText {
	return newPolicy(`
endpoints: [{name: sim}]
models:
  - `+pricedModel+`
  - {name: free, endpoint: sim}
  - {name: best, targets: [{model: sim-small}]}
teams: [{name: t1, models: ["*"]}]
`, map[string]string{"main": "team: t1", "rated": "team: t1, limits: [{model: sim-small, requests_per_day: 1}]"})
}

// TestPricesAndRefusals: what was served has its exact price in its record, also where the client left; what was refused is
// told of, bounded and to the last one; and the admissions balance.
func TestPricesAndRefusals(t *testing.T) {
	t.Parallel()
	u := ownUp(t, "priced", upOptions{policy: pricedPolicy(), workers: 1, rates: ratesFile(t)})
	wholeAnswersCost(t, u)
	priceOfTheRevision(t, u)
	refused := 2
	awayFromMidnight()
	u.ok(t, post(u.key("rated"), "/v1/chat/completions", oneToken))
	limited := u.do(t, post(u.key("rated"), "/v1/chat/completions", oneToken))
	wantRefusal(t, limited, "", http.StatusTooManyRequests, "insufficient_quota")
	unknown := u.do(t, post(u.key("main"), "/v1/chat/completions", strings.Replace(oneToken, "sim-small", u.key("rated"), 1)))
	wantRefusal(t, unknown, "", http.StatusNotFound, "model_not_found")
	u.ledger.refused(limited.admission())
	began := time.Now()
	refused += floodWithWrongKeys(t, u)
	all, own := awaitRefusals(t, u, refused)
	took := int(time.Since(began)/time.Second) + 3
	if most := took*2*(refusalsSoon+1) + 2; len(all) > most {
		t.Errorf("%d records of %d refusals in %d seconds", len(all), refused, took)
	}
	t.Logf("%d records of %d refusals in %d seconds", len(all), refused, took)
	ofOne(t, all, limited.admission(), &usagev1.Rejection{Code: "insufficient_quota", Limit: "key/requests_per_day/sim-small", Count: 1}, "rated", "sim-small")
	ofOne(t, all, unknown.admission(), &usagev1.Rejection{Code: "model_not_found", Count: 1}, "main", "")
	for _, r := range all {
		if j := r.GetRejection(); j.GetReason() == "unknown" && (r.GetKey()+r.GetTeam()+r.GetModel() != "" || j.GetCount() > 1 != (r.GetAdmission() == "")) {
			t.Errorf("a wrong key: %s", usage.AppendJSON(nil, r))
		}
	}
	exported(t, u, refused+own)
	eventually(t, journalPatience, func() error { // a worker's record comes a moment after the answer
		if out, err := command("usage", "reconcile", "-dir", u.dir, "-settle", "0s").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("It balances")) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// wholeAnswersCost compares the record with what the client was told.
func wholeAnswersCost(t *testing.T, u *up) {
	t.Helper()
	for range 2 { // the second finds its prompt in the cache
		body := fmt.Sprintf(`{"model":"best","max_tokens":33,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("a long prompt ", 300))
		r := u.ok(t, post(u.key("main"), "/v1/chat/completions", body))
		var answer struct {
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Details    struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal(r.body, &answer); err != nil {
			t.Fatal(err)
		}
		told, rec := answer.Usage, u.ledger.usage(t, r.admission())
		if want := costs(t, "1.25", "0.125", "10", told.Prompt, told.Details.Cached, told.Completion); rec.Cost == nil || rec.GetCost() != want || want == 0 ||
			rec.GetPrice().GetCurrency() != "USD" || rec.GetAttempt() != 1 {
			t.Errorf("want a cost of %d, got %s", want, usage.AppendJSON(nil, rec))
		}
	}
	if rec := u.ledger.usage(t, u.ok(t, post(u.key("main"), "/v1/chat/completions", strings.Replace(oneToken, "sim-small", "free", 1))).admission()); rec.Cost != nil || rec.Price != nil {
		t.Errorf("a model without a price: %s", usage.AppendJSON(nil, rec))
	}
}

// costs is a cost in millionths, by fractions: half up.
func costs(t *testing.T, input, cached, output string, prompt, found, completion int64) int64 {
	t.Helper()
	sum := new(big.Rat)
	for _, part := range []struct {
		price  string
		tokens int64
	}{{input, prompt - found}, {cached, found}, {output, completion}} {
		p, ok := new(big.Rat).SetString(part.price)
		if !ok {
			t.Fatal(part.price)
		}
		sum.Add(sum, p.Mul(p, new(big.Rat).SetInt64(part.tokens)))
	}
	sum.Add(sum, big.NewRat(1, 2))
	return new(big.Int).Quo(sum.Num(), sum.Denom()).Int64()
}

// priceOfTheRevision changes the price while a stream runs, which is then left: it costs what was delivered, at the price by
// which it was admitted.
func priceOfTheRevision(t *testing.T, u *up) {
	t.Helper()
	s, err := u.openStream(t.Context(), post(u.key("main"), "/v1/chat/completions", longBody("priced")))
	if err != nil {
		t.Fatal(err)
	}
	defer s.cut()
	if err := s.until("data:", 3); err != nil {
		t.Fatal(err)
	}
	u.rewrite(t, strings.Replace(u.policy.yaml(), pricedModel, dearerModel, 1))
	var dear *usagev1.Record
	eventually(t, factPatience, func() error {
		dear = u.ledger.usage(t, u.ok(t, post(u.key("main"), "/v1/chat/completions", oneToken)).admission())
		if dear.GetPrice().GetCurrency() != "EUR" {
			return fmt.Errorf("the price is still %v", dear.Price)
		}
		return nil
	})
	if want := costs(t, "2", "2", "20.000001", dear.GetPromptTokens(), dear.GetCachedTokens(), dear.GetCompletionTokens()); dear.GetCost() != want {
		t.Errorf("want a cost of %d, got %s", want, usage.AppendJSON(nil, dear))
	}
	s.cut()
	cut := u.ledger.usage(t, s.admission())
	want := costs(t, "1.25", "0.125", "10", cut.GetPromptTokens(), cut.GetCachedTokens(), cut.GetCompletionTokens())
	if cut.GetOutcome() != usage.OutcomeClientCut || cut.GetCompletionTokens() < 2 || cut.PromptTokens == nil || cut.Cost == nil || cut.GetCost() != want || cut.GetRevision() >= dear.GetRevision() {
		t.Errorf("want a cost of %d, got %s", want, usage.AppendJSON(nil, cut))
	}
}

// floodWithWrongKeys sends many, and returns how many were refused: all.
func floodWithWrongKeys(t *testing.T, u *up) int {
	t.Helper()
	wrong, _ := identity.NewKey()
	u.policy.keep(wrong) // is looked for in all that is written
	transport := &http.Transport{MaxIdleConnsPerHost: wrongAtOnce}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: callPatience}
	work := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	refused := map[int]int{}
	for range wrongAtOnce {
		all.Go(func() {
			for range work {
				req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, "http://"+u.listen+"/v1/chat/completions", strings.NewReader(oneToken))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer "+wrong)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					continue
				}
				_, _ = bytes.NewBuffer(nil).ReadFrom(resp.Body)
				resp.Body.Close()
				mu.Lock()
				refused[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	for range lab.scaled(wrongKeys) {
		work <- struct{}{}
	}
	close(work)
	all.Wait()
	if sum := refused[401] + refused[429]; sum != lab.scaled(wrongKeys) || refused[401] < 10 || refused[429] == 0 {
		t.Errorf("answers by status: %v", refused)
	}
	return refused[401] + refused[429]
}

// awaitRefusals waits until the records tell of so many refusals, and of none beyond, but for those by which `up` itself looked
// whether the door is open.
func awaitRefusals(t *testing.T, u *up, want int) (all []*usagev1.Record, own int) {
	t.Helper()
	eventually(t, journalPatience, func() error {
		all, own = nil, 0
		told := 0
		_, err := usage.Read(filepath.Join(u.dir, "spool"), func(r *usagev1.Record) error {
			switch {
			case r.GetKind() == usage.KindRejected && r.GetOperation() == "models":
				own++
			case r.GetKind() == usage.KindRejected:
				all = append(all, r)
				told += int(r.GetRejection().GetCount())
			}
			return nil
		})
		if err == nil && told != want {
			err = fmt.Errorf("%d records tell of %d refusals, want %d", len(all), told, want)
		}
		return err
	})
	return all, own
}

func ofOne(t *testing.T, all []*usagev1.Record, admission string, want *usagev1.Rejection, key, model string) {
	t.Helper()
	i := slices.IndexFunc(all, func(r *usagev1.Record) bool { return r.GetAdmission() == admission })
	if i < 0 {
		t.Errorf("no record of %s", admission)
		return
	}
	r := all[i]
	if j := r.GetRejection(); j.String() != want.String() || r.GetKey() != key || r.GetTeam() != "t1" || r.GetModel() != model || r.GetSource() != "rejected/door/door-1" {
		t.Errorf("%s", usage.AppendJSON(nil, r))
	}
}

// exported adds up what the command prints.
func exported(t *testing.T, u *up, want int) {
	t.Helper()
	out, err := command("usage", "export", "-dir", u.dir, "-kind", "rejected", "-format", "csv").Output()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column, sum := slices.Index(rows[0], "rejection_count"), 0
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[column])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != want {
		t.Errorf("the export tells of %d refusals, want %d", sum, want)
	}
}
