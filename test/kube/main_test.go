//go:build kube

// Package kube tests what Spokegate is in a cluster, against the real API server (package rig): pools and pods that pickers find,
// the charts, and what service accounts may.
package kube

import (
	"fmt"
	"os"
	"testing"

	"github.com/spokegate/spokegate/test/kube/rig"
)

// cluster is the one that all tests share, and node what runs pods there; each test has a namespace of its own.
var (
	cluster *rig.Cluster
	node    *rig.Node
)

func TestMain(m *testing.M) {
	os.Exit(rig.Main(func() int {
		c, err := rig.Start()
		if err != nil {
			fmt.Fprintln(os.Stderr, "kube:", err)
			return 1
		}
		defer c.Stop()
		cluster = c
		if node, err = c.StartNode(); err != nil {
			fmt.Fprintln(os.Stderr, "kube:", err)
			return 1
		}
		defer node.Stop()
		return m.Run()
	}))
}
