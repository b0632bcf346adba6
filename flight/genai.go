package flight

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/openai"
	"github.com/spokegate/spokegate/usage"
)

// provider is what every gen_ai metric says of who serves.
const provider = "spokegate"

// genAI are the metrics by OpenTelemetry's conventions for generative AI, with its names and buckets, and what each team
// used. Every label value is one of a few words or a name of the policy: a request that named another was not admitted.
type genAI struct {
	duration, firstToken, perToken, tokens *prometheus.HistogramVec
	teamTokens, teamRequests               *prometheus.CounterVec

	// Under the table's lock: what the requests of one kind are counted in, so that it is searched for once.
	kinds map[kind]*kindMetrics
}

type kind struct{ operation, model, team, outcome string }

type kindMetrics struct {
	duration, firstToken, perToken, input, output prometheus.Observer
	teamInput, teamOutput, teamRequests           prometheus.Counter
}

func newGenAI(with promauto.Factory) *genAI {
	labels := []string{"gen_ai_operation_name", "gen_ai_request_model", "gen_ai_provider_name"}
	histogram := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return with.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, append(labels[:3:3], more...))
	}
	return &genAI{
		duration: histogram("gen_ai_server_request_duration_seconds", "From admission to end; error_type is the outcome where it is not complete.",
			[]float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}, "error_type"),
		firstToken: histogram("gen_ai_server_time_to_first_token_seconds", "From admission to the first byte of a streamed answer.",
			[]float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}),
		perToken: histogram("gen_ai_server_time_per_output_token_seconds", "Time a token after the first, of streamed answers that are complete.",
			[]float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}),
		tokens: histogram("gen_ai_client_token_usage", "Tokens of a request, where they are known.",
			[]float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}, "gen_ai_token_type"),
		teamTokens: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_team_tokens_total", Help: "Tokens that a team used, where they are known, by model and type.",
		}, []string{"team", "model", "type"}),
		teamRequests: with.NewCounterVec(prometheus.CounterOpts{
			Name: "spokegate_team_requests_total", Help: "Admitted requests of a team that have ended, by outcome.",
		}, []string{"team", "outcome"}),
		kinds: map[kind]*kindMetrics{},
	}
}

// finished counts one request. What is unknown is not counted: it is not 0.
func (g *genAI) finished(r *usagev1.Record) {
	k := kind{r.Operation, r.Model, r.Team, r.Outcome}
	m := g.kinds[k]
	if m == nil {
		m = g.of(k)
		g.kinds[k] = m
	}
	m.teamRequests.Inc()
	admitted, first, ended := r.AdmittedAt.AsTime(), r.FirstByteAt.AsTime(), r.EndedAt.AsTime()
	m.duration.Observe(seconds(admitted, ended))
	if r.Stream && r.FirstByteAt != nil {
		m.firstToken.Observe(seconds(admitted, first))
		if r.Outcome == usage.OutcomeComplete && r.GetCompletionTokens() > 1 {
			m.perToken.Observe(seconds(first, ended) / float64(r.GetCompletionTokens()-1))
		}
	}
	count := func(n *int64, of prometheus.Observer, sum prometheus.Counter) {
		if n != nil && *n >= 0 {
			of.Observe(float64(*n))
			sum.Add(float64(*n))
		}
	}
	count(r.PromptTokens, m.input, m.teamInput)
	count(r.CompletionTokens, m.output, m.teamOutput)
}

func seconds(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

// of finds the metrics of a kind.
func (g *genAI) of(k kind) *kindMetrics {
	operation, failure := conventional(k.operation), k.outcome
	if failure == usage.OutcomeComplete {
		failure = ""
	}
	return &kindMetrics{
		duration:     g.duration.WithLabelValues(operation, k.model, provider, failure),
		firstToken:   g.firstToken.WithLabelValues(operation, k.model, provider),
		perToken:     g.perToken.WithLabelValues(operation, k.model, provider),
		input:        g.tokens.WithLabelValues(operation, k.model, provider, "input"),
		output:       g.tokens.WithLabelValues(operation, k.model, provider, "output"),
		teamInput:    g.teamTokens.WithLabelValues(k.team, k.model, "input"),
		teamOutput:   g.teamTokens.WithLabelValues(k.team, k.model, "output"),
		teamRequests: g.teamRequests.WithLabelValues(k.team, k.outcome),
	}
}

// conventional is an operation's name in the conventions.
func conventional(operation string) string {
	for op := openai.Chat; op <= openai.Models; op++ {
		if op.String() == operation {
			return op.GenAI()
		}
	}
	return openai.Unknown.GenAI()
}
