#!/bin/sh
# Builds Envoy Gateway into .tools/bin for the tests that need a real one: some five minutes on two cores, once.
# Does nothing when the pinned version is there. Needs Go.
set -eu

VERSION=v1.9.1

cd "$(dirname "$0")/../.."
bin=$PWD/.tools/bin
pin=$bin/envoy-gateway.pin

if [ -x "$bin/envoy-gateway" ] && [ "$(cat "$pin" 2>/dev/null)" = "$VERSION" ]; then
	echo "==> Envoy Gateway $VERSION is in .tools/bin"
	exit 0
fi
echo "==> building Envoy Gateway $VERSION into .tools/bin (five minutes on two cores)"
mkdir -p "$bin"
rm -f "$pin"
GOBIN=$bin GOFLAGS= go install -ldflags='-s -w' "github.com/envoyproxy/gateway/cmd/envoy-gateway@$VERSION" ||
	{ echo "envoy-gateway.sh: go could not build it: see above" >&2; exit 1; }
echo "$VERSION" >"$pin"
