package policy

// File is the policy as people write it, in YAML. These types are the file's manual: the strict decoder and the JSON
// schema are both made from them, and unknown keys fail.
//
// Tags: yaml, the key; need, "yes" where it must be given; form, the kind of value (see formSchema); doc, for editors.
type File struct {
	Platform  *PlatformEntry   `yaml:"platform" doc:"Limits for everything together."`
	Models    []*ModelEntry    `yaml:"models" need:"yes" form:"filled" doc:"The names that requests may ask for."`
	Endpoints []*EndpointEntry `yaml:"endpoints" need:"yes" form:"filled" doc:"The pools of workers that serve the models."`
	Teams     []*TeamEntry     `yaml:"teams" doc:"Groups of keys with models and limits in common."`
	Keys      []*KeyEntry      `yaml:"keys" doc:"Who may ask: the SHA-256 of each key, never a key itself."`
}

// PlatformEntry is what holds for everyone.
type PlatformEntry struct {
	Limits []*LimitEntry `yaml:"limits" doc:"Limits for the whole platform; one for all models together, and one for each model."`
}

// ModelEntry is a name that requests ask for.
type ModelEntry struct {
	Name     string        `yaml:"name" need:"yes" form:"model" doc:"The name that requests give, for example meta-llama/Llama-3.1-8B-Instruct."`
	Endpoint string        `yaml:"endpoint" need:"yes" form:"id" doc:"The endpoint that serves it. Several models may name one."`
	Limits   []*LimitEntry `yaml:"limits" doc:"The platform's limits for this model alone."`
}

// EndpointEntry is a pool of workers.
type EndpointEntry struct {
	Name        string        `yaml:"name" need:"yes" form:"id" doc:"The name that workers join by."`
	AllowFields []string      `yaml:"allow_fields" form:"field" doc:"Members of a request body that steer an engine (priority, cache_salt, kv_transfer_params, ...) and may pass here; media_urls: also addresses of media that the engine fetches. Default: none."`
	Routing     *RoutingEntry `yaml:"routing" doc:"How a worker is chosen. The defaults are good."`
}

// RoutingEntry sets an endpoint's router.
type RoutingEntry struct {
	OverlapWeight *float64 `yaml:"overlap_weight" form:"weight" doc:"Weight of prompt blocks that a worker must still compute, against blocks that it is decoding. Default 1; 0 looks at load only."`
	Temperature   *float64 `yaml:"temperature" form:"weight" doc:"0, the default, always takes the worker of the lowest cost; above, chance spreads more."`
	BlockBytes    *uint32  `yaml:"block_bytes" form:"block" doc:"Bytes of a prompt that stand for one block of KV cache. Default 64."`
}

// TeamEntry is a group of keys.
type TeamEntry struct {
	Name   string        `yaml:"name" need:"yes" form:"id" doc:"The team's name, as usage records give it."`
	Models []string      `yaml:"models" need:"yes" form:"patterns" doc:"What its keys may use: names, or a beginning with a final *. Each must name at least one model."`
	Limits []*LimitEntry `yaml:"limits" doc:"Limits for all keys of the team together; one for all models together, and one for each model."`
}

// KeyEntry is one key.
type KeyEntry struct {
	ID      string        `yaml:"id" need:"yes" form:"id" doc:"The key's name in records and messages. Not the secret."`
	Team    string        `yaml:"team" need:"yes" form:"id" doc:"The team it belongs to."`
	SHA256  string        `yaml:"sha256" need:"yes" form:"hash" doc:"SHA-256 of the secret, 64 hex digits, as 'spokegate key new' prints it."`
	Models  []string      `yaml:"models" form:"patterns" doc:"Narrows the team's models. Leave it out for all of them."`
	Limits  []*LimitEntry `yaml:"limits" doc:"Limits for this key; one for all models together, and one for each model."`
	Revoked bool          `yaml:"revoked" doc:"true: refused from now on."`
	Expires string        `yaml:"expires" form:"time" doc:"When it stops, for example 2027-01-31T00:00:00Z. Leave it out for never."`
}

// LimitEntry is one limit. Each value given must pass; a request meets the limits of all levels, and the strictest binds.
type LimitEntry struct {
	Model             string   `yaml:"model" form:"model" doc:"Counts only requests for this model. Leave it out to count all together."`
	RequestsPerSecond *float64 `yaml:"requests_per_second" form:"rate" doc:"Requests a second, sustained; 0.5 is one every two seconds."`
	Burst             *uint32  `yaml:"burst" form:"count" doc:"How many may come at once. Default: one second's worth, at least 1."`
	Concurrency       *uint32  `yaml:"concurrency" form:"count" doc:"Requests in flight at one time."`
}

// hint explains a key that people may expect and that does not exist; "" if there is nothing to say.
func hint(key string) string {
	switch key {
	case "tokens_per_minute":
		return noTokens
	case "secret", "key", "api_key", "token":
		return "a policy never holds a key itself; give its sha256, as `spokegate key new` prints it"
	case "expires_at":
		return "the key's end is called expires"
	case "rps":
		return "a rate is called requests_per_second"
	}
	return ""
}

const noTokens = "limits of tokens are not supported yet, so nothing would enforce this; take it out"
