// Package hub is the control plane: it keeps what the policy consists of (spokes, endpoints, models, teams, keys, issuers and
// the platform's own settings), makes a numbered revision of every change, and says which part of it each spoke gets.
//
// It promises that a revision is checked whole before it is stored, that numbers have no gaps and are never given twice, that
// whatever was answered survives a loss of power, and that every change is in the audit log with who made it. Secrets of keys
// and of admin tokens are answered once and stored nowhere; what is kept is their SHA-256.
//
// It speaks no protocol: package hub/api is its REST API, and package xds carries its cuts to the spokes.
package hub
