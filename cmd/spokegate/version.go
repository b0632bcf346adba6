package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// version is set by a release: -ldflags "-X main.version=v1.2.3".
var version string

// buildVersion is the version without blanks, as far as it is known: "devel" for a build of a working copy.
func buildVersion() string {
	if version != "" {
		return version
	}
	v, revision := "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if m := info.Main.Version; m != "" && m != "(devel)" {
			v = m
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v == "devel" {
				revision = "+" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return strings.ReplaceAll(v+revision, " ", "-")
}

func runVersion(_ context.Context, args []string) error {
	f := flag.NewFlagSet("version", flag.ContinueOnError)
	sbom := f.Bool("sbom", false, "print a bill of materials instead: every module of this binary with its version and hash, as CycloneDX JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if *sbom {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return errors.New("this binary was built without knowing of what")
		}
		return writeBOM(os.Stdout, info, buildVersion())
	}
	fmt.Printf("spokegate %s, %s, %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

// buildInfo is 1, always; its labels tell what runs.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spokegate_build_info", Help: "What runs here; always 1."}, []string{"version", "goversion"})
	g.WithLabelValues(buildVersion(), runtime.Version()).Set(1)
	return g
}
