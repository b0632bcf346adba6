// Package roll replaces door pairs and workers under load, processes on one machine standing for pods, and holds that no request
// fails for it and each is accounted for once. It runs with the build tag kube, as root: pods' DNS is a hosts file of their own.
package roll
