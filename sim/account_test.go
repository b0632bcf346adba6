package sim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMetricsAndAccounts(t *testing.T) {
	_, url := start(t, fast())
	post(t, url+"/v1/completions", `{"model":"m","prompt":"`+strings.Repeat("abcd", 40)+`","max_tokens":5}`)
	post(t, url+"/v1/embeddings", `{"model":"m","input":["abcd","efgh"],"dimensions":3,"encoding_format":"base64"}`)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // an answer may be read before its account is closed
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		missing := slices.DeleteFunc([]string{
			"spokegate_sim_prompt_tokens_total 42", "spokegate_sim_generation_tokens_total 5", "spokegate_sim_cached_tokens_total 0",
			"spokegate_sim_requests_running 0", `spokegate_sim_requests_total{outcome="complete"} 2`},
			func(want string) bool { return bytes.Contains(b, []byte(want+"\n")) })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%q is missing in\n%s", missing, b)
		}
	}
	resp2, err := http.Get(url + "/sim/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp2.Body.Close()
	var list []RequestAccount
	if err := json.NewDecoder(resp2.Body).Decode(&list); err != nil || len(list) != 2 || list[0].GeneratedTokens != 5 {
		t.Errorf("%v %+v", err, list)
	}
}
