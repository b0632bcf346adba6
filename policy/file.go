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
	Issuers   []*IssuerEntry   `yaml:"issuers" doc:"Who signs the JWTs that may stand in place of keys."`
}

// PlatformEntry is what holds for everyone.
type PlatformEntry struct {
	Limits   []*LimitEntry `yaml:"limits" doc:"Limits for the whole platform; one for all models together, and one for each model."`
	Tokens   *TokensEntry  `yaml:"tokens" doc:"How tokens count towards limits of tokens, for models that do not say it themselves."`
	OnRevoke string        `yaml:"on_revoke" form:"revoke" doc:"What becomes of requests that a key has running when it is revoked: cut, the default, or finish. A key that expires may always finish."`
}

// ModelEntry is a name that requests ask for: one that an endpoint serves, or an alias, whose requests go to its targets.
//
// Who may use an alias need not be permitted its targets: what counts is the name that is asked for. A request for an alias
// meets the limits of the alias and those of the target that it goes to.
type ModelEntry struct {
	Name       string         `yaml:"name" need:"yes" form:"model" doc:"The name that requests give, for example meta-llama/Llama-3.1-8B-Instruct."`
	Endpoint   string         `yaml:"endpoint" form:"id" doc:"The endpoint that serves it. Several models may name one. Every model has either this or targets."`
	EngineName string         `yaml:"engine_name" form:"engine" doc:"What the engine calls it, for example the name of a LoRA adapter. Default: the name."`
	Targets    []*TargetEntry `yaml:"targets" form:"filled" doc:"Makes it an alias: the models that its requests go to, by weight. None of them may be an alias."`
	Limits     []*LimitEntry  `yaml:"limits" doc:"The platform's limits for requests by this name; of an alias, beside those of its targets."`
	Tokens     *TokensEntry   `yaml:"tokens" doc:"How tokens of this model count; what is left out is as under platform."`
	Price      *PriceEntry    `yaml:"price" doc:"What its tokens cost, for usage records. Nothing is decided by it."`
}

// PriceEntry is what a million tokens of a model cost. An amount may stand in quotes or without; it is read as it is written.
// A request costs what the revision said that admitted it.
type PriceEntry struct {
	Currency string  `yaml:"currency" need:"yes" form:"currency" doc:"The code of ISO 4217, for example USD. Models may have different ones."`
	Input    *Micros `yaml:"input" need:"yes" doc:"A million prompt tokens, for example \"1.25\"; up to 6 digits behind the point."`
	Cached   *Micros `yaml:"cached" doc:"A million prompt tokens that the engine had in its cache. Default: as input."`
	Output   *Micros `yaml:"output" need:"yes" doc:"A million tokens of answers; 0 for a model that makes none, of embeddings for example."`
}

// TargetEntry is one of the models that an alias stands for.
type TargetEntry struct {
	Model  string  `yaml:"model" need:"yes" form:"model" doc:"The name of a model that has an endpoint."`
	Weight *uint32 `yaml:"weight" form:"count" doc:"Its share of the requests, against the weights of the others. Default 1."`
}

// TokensEntry says how tokens count towards limits of tokens. A request reserves, when it is admitted, an estimate of its
// prompt and of its answer; when it ends, the difference to what it used is given back or charged.
type TokensEntry struct {
	OutputMost   *uint32  `yaml:"output_most" form:"count" doc:"The most that is reserved for an answer whose length is not known yet, in tokens. A request that asks for less (max_tokens) reserves less; one that uses more is charged at its end. Default 1024."`
	CachedWeight *float64 `yaml:"cached_weight" form:"share" doc:"What a prompt token counts that the engine had in its cache: 1, the default, in full; 0 not at all; 0.1 a tenth."`
}

// EndpointEntry is a pool of workers.
type EndpointEntry struct {
	Name        string        `yaml:"name" need:"yes" form:"id" doc:"The name that workers join by."`
	AllowFields []string      `yaml:"allow_fields" form:"field" doc:"Members of a request body that steer an engine (priority, cache_salt, kv_transfer_params, ...) and may pass here; media_urls: also addresses of media that the engine fetches. Default: none."`
	Routing     *RoutingEntry `yaml:"routing" doc:"How a worker is chosen. The defaults are good."`
}

// RoutingEntry sets an endpoint's router.
type RoutingEntry struct {
	OverlapWeight  *float64    `yaml:"overlap_weight" form:"weight" doc:"Weight of prompt blocks that a worker must still compute, against blocks that it is decoding. Default 16; 0 looks at load only."`
	MissWeight     *float64    `yaml:"miss_weight" form:"weight" doc:"What a prompt block that a worker lacks counts beyond the time to compute it, for the cache that it takes and the time that others wait. Default 1; above, prompts stay longer where they are held; 0 counts time only."`
	Temperature    *float64    `yaml:"temperature" form:"weight" doc:"0, the default, always takes the worker of the lowest cost; above, chance spreads more."`
	BlockBytes     *uint32     `yaml:"block_bytes" form:"block" doc:"Bytes of a prompt that stand for one block of KV cache. Default 64."`
	Tiers          *TiersEntry `yaml:"tiers" doc:"What a block counts that is not on a worker's device, from 0 to 1 of one that is."`
	ActiveWeight   *float64    `yaml:"active_weight" form:"weight" doc:"What each request in flight counts, in blocks, whatever its length. Default 0."`
	CreditDecay    *float64    `yaml:"credit_decay" form:"weight" doc:"How fast what a worker holds counts less as it has more requests: it is divided by 1 + credit_decay × requests. Default 0: not at all."`
	AffinityWeight *float64    `yaml:"affinity_weight" form:"weight" doc:"What a session's last worker is preferred by, as a share of the prompt's blocks. Default 0: sessions are not remembered."`
	Busy           *BusyEntry  `yaml:"busy" doc:"Beyond any of these thresholds a worker is not chosen; when all workers are, requests are refused. Default: nothing is too much."`
	Split          *SplitEntry `yaml:"split" doc:"When a prompt is prefilled by one worker for another, where there are workers of both roles."`
}

// TiersEntry says what a block is worth by where it is: it must be fetched from there before it is of use.
type TiersEntry struct {
	Host   *float64 `yaml:"host" form:"share" doc:"In the host's memory. Default 0.75."`
	Disk   *float64 `yaml:"disk" form:"share" doc:"On a disk of the worker. Default 0.25."`
	Shared *float64 `yaml:"shared" form:"share" doc:"In a pool that all workers of the endpoint share, whoever put it there. Default 0.5."`
}

// BusyEntry sets the thresholds of load. They may be changed at any time, and hold from the next request on.
type BusyEntry struct {
	DecodeShare   *float64 `yaml:"decode_share" form:"share" doc:"Share of a worker's KV blocks that requests use, for example 0.85. 0: nothing is too much."`
	PrefillTokens *uint32  `yaml:"prefill_tokens" form:"count" doc:"Prompt tokens that wait at a worker to be computed, for example 10000."`
	Queue         *uint32  `yaml:"queue" form:"count" doc:"Requests at a worker that have no first byte yet."`
}

// SplitEntry says which prompts are worth to be sent to two workers.
type SplitEntry struct {
	MinTokens   *uint32  `yaml:"min_tokens" form:"count" doc:"Prompt tokens that the decode worker lacks, at least. Default 512."`
	CachedShare *float64 `yaml:"cached_share" form:"share" doc:"A decode worker that holds this share of the prompt computes the rest by itself. Default 0.9."`
}

// TeamEntry is a group of keys.
type TeamEntry struct {
	Name      string        `yaml:"name" need:"yes" form:"id" doc:"The team's name, as usage records give it."`
	Models    []string      `yaml:"models" need:"yes" form:"patterns" doc:"What its keys may use: names, or a beginning with a final *. Each must name at least one model."`
	Limits    []*LimitEntry `yaml:"limits" doc:"Limits for all keys of the team together; one for all models together, and one for each model."`
	Sheddable bool          `yaml:"sheddable" doc:"true: requests of its keys are refused first, with 429, when all workers are busy."`
	Explain   bool          `yaml:"explain" doc:"true: its keys may ask how a worker was chosen, with the header x-spokegate-explain. That tells of all workers of the endpoint."`
}

// KeyEntry is one key.
type KeyEntry struct {
	ID        string            `yaml:"id" need:"yes" form:"id" doc:"The key's name in records and messages. Not the secret."`
	Team      string            `yaml:"team" need:"yes" form:"id" doc:"The team it belongs to."`
	SHA256    string            `yaml:"sha256" need:"yes" form:"hash" doc:"SHA-256 of the secret, 64 hex digits, as 'spokegate key new' prints it."`
	Models    []string          `yaml:"models" form:"patterns" doc:"Narrows the team's models. Leave it out for all of them."`
	Limits    []*LimitEntry     `yaml:"limits" doc:"Limits for this key; one for all models together, and one for each model."`
	Revoked   bool              `yaml:"revoked" doc:"true: refused from now on."`
	Expires   string            `yaml:"expires" form:"time" doc:"When it stops, for example 2027-01-31T00:00:00Z. Leave it out for never."`
	Networks  []string          `yaml:"networks" form:"network" doc:"Where it may be used from: networks like 10.0.0.0/8 or \"2001:db8::/32\" (in quotes), or single addresses. Leave it out for everywhere."`
	Labels    map[string]string `yaml:"labels" form:"label" doc:"Words for usage records. Nothing is decided by them."`
	Sheddable bool              `yaml:"sheddable" doc:"true: its requests are refused first, with 429, when all workers are busy. So they are where its team is."`
	Explain   bool              `yaml:"explain" doc:"true: it may ask how a worker was chosen, with the header x-spokegate-explain. So it may where its team may."`
}

// IssuerEntry signs JWTs that may stand in place of keys. Each subject (the claim sub) is a key of its own, with the team
// that the JWT names and limits of its own; records and limits call it NAME:SUBJECT.
type IssuerEntry struct {
	Name            string        `yaml:"name" need:"yes" form:"id" doc:"The issuer's name in records, before each subject's."`
	Issuer          string        `yaml:"issuer" need:"yes" form:"claim" doc:"What the claim iss says, exactly."`
	Audience        string        `yaml:"audience" need:"yes" form:"claim" doc:"What the claim aud must name, exactly."`
	JWKSFile        string        `yaml:"jwks_file" form:"path" doc:"File with its public keys, by its whole path on the door's machine. Either this or jwks_url."`
	JWKSURL         string        `yaml:"jwks_url" form:"https" doc:"https address of its public keys. Either this or jwks_file."`
	Teams           []string      `yaml:"teams" form:"team" doc:"The teams that it may name. Leave it out for all of them."`
	TeamClaim       string        `yaml:"team_claim" form:"claim" doc:"The claim that names the team. Default: team."`
	ModelsClaim     string        `yaml:"models_claim" form:"claim" doc:"The claim that lists what narrows the team's models, as models does for a key. Leave it out, and nothing does; named here, a JWT without it may use nothing."`
	Limits          []*LimitEntry `yaml:"limits" doc:"Limits for each subject by itself; one for all models together, and one for each model."`
	RevokedSubjects []string      `yaml:"revoked_subjects" form:"subject" doc:"Subjects that are refused from now on."`
}

// LimitEntry is one limit. Each value given must pass; a request meets the limits of all levels, and the strictest binds.
// Minutes, days and months are those of the calendar, in UTC; tokens are those of prompt and answer.
type LimitEntry struct {
	Model             string   `yaml:"model" form:"model" doc:"Counts only requests for this model, asked for by its name or by an alias; an alias here counts requests by that name. Leave it out to count all together."`
	RequestsPerSecond *float64 `yaml:"requests_per_second" form:"rate" doc:"Requests a second, sustained; 0.5 is one every two seconds."`
	Burst             *uint32  `yaml:"burst" form:"count" doc:"How many may come at once. Default: one second's worth, at least 1."`
	Concurrency       *uint32  `yaml:"concurrency" form:"count" doc:"Requests in flight at one time."`
	TokensPerMinute   *uint64  `yaml:"tokens_per_minute" form:"quota" doc:"Tokens in a minute. Want more than one request reserves, its prompt and output_most: no policy is taken whose limit lets none of these pass."`
	RequestsPerDay    *uint64  `yaml:"requests_per_day" form:"quota" doc:"Requests in a day."`
	TokensPerDay      *uint64  `yaml:"tokens_per_day" form:"quota" doc:"Tokens in a day."`
	RequestsPerMonth  *uint64  `yaml:"requests_per_month" form:"quota" doc:"Requests in a month."`
	TokensPerMonth    *uint64  `yaml:"tokens_per_month" form:"quota" doc:"Tokens in a month."`
}
