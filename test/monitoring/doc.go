// Package monitoring holds deploy/monitoring and docs/runbooks.md against each other, and, with the build tag monitoring, every query
// of a dashboard and every rule against a real Prometheus that scrapes a real `spokegate up`.
package monitoring
