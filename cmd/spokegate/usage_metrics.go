package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokegate/spokegate/usage/balance"
)

// writeBalanceMetrics puts what was found into a file of Prometheus' text, whole or not at all. This command ends, so somebody
// else must serve it: node_exporter's textfile collector, which wants the file's name to end in .prom.
func writeBalanceMetrics(path string, r *balance.Report) error {
	reg := prometheus.NewRegistry()
	gauge := func(o prometheus.GaugeOpts, value float64) {
		g := prometheus.NewGauge(o)
		g.Set(value)
		reg.MustRegister(g)
	}
	balanced := 0.0
	if r.Balanced {
		balanced = 1
	}
	gauge(prometheus.GaugeOpts{Name: "spokegate_balance_balanced", Help: "1: the last reconciliation balanced; 0: it did not."}, balanced)
	gauge(prometheus.GaugeOpts{Name: "spokegate_balance_run_timestamp_seconds", Help: "When the records were judged last."}, float64(r.At.Unix()))
	gauge(prometheus.GaugeOpts{Name: "spokegate_balance_admissions", Help: "Admissions that were found."}, float64(r.Total.Admitted))
	gauge(prometheus.GaugeOpts{Name: "spokegate_balance_open", Help: "Of these, the ones that could not be judged yet."}, float64(r.Total.Open))
	problems := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_balance_problems", Help: "What stands against the balance, by kind."}, []string{"kind"})
	notes := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spokegate_balance_notes", Help: "What balances and is worth a look, by kind."}, []string{"kind"})
	reg.MustRegister(problems, notes)
	for _, kind := range balance.Kinds() {
		of := notes
		if kind.Fails() {
			of = problems
		}
		of.WithLabelValues(string(kind)).Set(float64(r.Counts[kind]))
	}
	if err := prometheus.WriteToTextfile(path, reg); err != nil {
		return fmt.Errorf("-metrics: %w", err)
	}
	return nil
}
