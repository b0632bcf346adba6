// Command apiserver is the Kubernetes API server, as it is released: the tests of what Spokegate does in a cluster run against
// it. It is a module of its own, so that nothing else here depends on Kubernetes' main module.
package main

import (
	"os"

	_ "time/tzdata" // as in the released server

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
