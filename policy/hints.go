package policy

// hint explains a key that people may expect and that does not exist; "" if there is nothing to say.
func hint(key string) string { return hints[key] }

var hints = func() map[string]string {
	out := map[string]string{}
	for _, h := range []struct {
		text string
		keys []string
	}{
		{"a policy never holds a key itself; give its sha256, as `spokegate key new` prints it", []string{"secret", "key", "api_key", "token"}},
		{"the key's end is called expires", []string{"expires_at", "expiry", "expiration", "valid_until"}},
		{"a key that may do nothing more is revoked: true", []string{"disabled", "enabled", "active", "blocked", "revoked_at"}},
		{"a rate is called requests_per_second", []string{"rps", "rate", "requests"}},
		{"a rate is told a second: requests_per_second, with burst for how many may come at once; 60 a minute are 1 a second", []string{"rpm", "requests_per_minute", "requests_per_hour", "rph"}},
		{"requests in flight at one time are called concurrency", []string{"max_concurrency", "parallel", "max_parallel_requests", "in_flight"}},
		{"tokens of a minute are called tokens_per_minute", []string{"tpm", "tokens_per_second", "tps"}},
		{"a day's quotas are called requests_per_day and tokens_per_day", []string{"rpd", "tpd", "daily", "per_day"}},
		{"a month's quotas are called requests_per_month and tokens_per_month", []string{"monthly", "per_month"}},
		{"quotas are members of an entry of limits: requests_per_day, tokens_per_day, requests_per_month, tokens_per_month", []string{"quota", "quotas", "budget", "max_budget"}},
		{"an alias is an entry of models with targets: [{model: NAME, weight: 1}] in place of endpoint", []string{"alias", "aliases", "alias_of", "target", "backends", "fallbacks"}},
		{"what the engine calls a model is engine_name", []string{"lora", "adapter", "served_model_name", "upstream_name", "rewrite"}},
		{"the addresses that a key may come from are called networks", []string{"ip", "ips", "allowed_ips", "allowed_networks", "cidr", "cidrs", "allow_from", "ip_allowlist"}},
		{"words for records are called labels", []string{"tags", "metadata", "annotations"}},
		{"how tokens are counted is said by tokens: {output_most: 1024, cached_weight: 1}", []string{"max_tokens", "max_output_tokens", "cached_tokens", "output_estimate"}},
		{"what a model's tokens cost is price: {currency: USD, input: \"1.25\", cached: \"0.125\", output: \"10\"}, a million of them", []string{"prices", "pricing", "cost", "costs", "input_price", "output_price", "input_cost_per_token", "output_cost_per_token"}},
		{"the price of cached prompt tokens is called cached", []string{"cached_input", "cache_read"}},
		{"those who sign JWTs are called issuers, each with jwks_file or jwks_url", []string{"jwt", "oidc", "jwks", "jwks_uri", "providers"}},
		{"the claim iss is called issuer", []string{"iss"}},
		{"the claim aud is called audience", []string{"aud", "audiences"}},
		{"what becomes of a revoked key's running requests is on_revoke: cut or finish, under platform", []string{"cut_revoked", "cut_on_revoke"}},
	} {
		for _, k := range h.keys {
			out[k] = h.text
		}
	}
	return out
}()
