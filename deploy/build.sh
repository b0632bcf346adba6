#!/bin/sh
# Builds the binary that is released: the same bytes from the same sources and the same Go, wherever they lie and whoever builds.
# usage: deploy/build.sh OUT [VERSION]
set -eu
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
version=${2:-}
cd "$(dirname "$0")/.."
unset GOFLAGS GOEXPERIMENT # flags of the machine would be in the binary
CGO_ENABLED=0 go build -trimpath -buildvcs=false -mod=readonly -ldflags "-s -w -buildid= -X main.version=$version" -o "$out" ./cmd/spokegate
