#!/bin/sh
# Makes sure of what the tests in a cluster need: etcd, the Kubernetes API server, Helm, and the CRDs of Gateway API, Envoy
# Gateway, cert-manager and Prometheus' operator. All but etcd goes to .tools/. The API server is built from its source, once: about 10 minutes on two cores.
set -eu
cd "$(dirname "$0")/../.."

HELM=v3.22.0
GATEWAY_API=v1.6.3
ENVOY_GATEWAY=v1.9.1
CERT_MANAGER=v1.21.2
PROMETHEUS_OPERATOR=v0.85.0

say() { echo "==> $*"; }
fail() { echo "kube: $*" >&2; exit 1; }

# Debian's packages: etcd, and what the pods' namespaces are made with.
missing=
command -v etcd >/dev/null || missing="$missing etcd-server"
command -v ip >/dev/null || missing="$missing iproute2"
if [ -n "$missing" ]; then
	command -v apt-get >/dev/null || fail "missing:$missing, and there is no apt-get here; install etcd 3.4 or newer and iproute2, and put etcd and ip on PATH"
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || fail "missing, and installing it needs root or sudo; run as root: apt-get install$missing"
		sudo=sudo
	fi
	say "installing$missing with ${sudo:+sudo }apt-get (the tests start an etcd of their own and leave Debian's service alone)"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the package lists that are here"
	# shellcheck disable=SC2086 # words
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
		fail "apt-get could not install$missing; see above"
fi
say "etcd $(etcd --version | sed -n 's/^etcd Version: //p') at $(command -v etcd)"

mkdir -p .tools/bin .tools/crds
bin=$(pwd)/.tools/bin

# A pin says what was built from what: another source is built anew.
pin=$(cat test/setup/apiserver/go.mod test/setup/apiserver/go.sum test/setup/apiserver/main.go | sha256sum | cut -d' ' -f1)
if [ ! -x "$bin/kube-apiserver" ] || [ "$(cat "$bin/kube-apiserver.pin" 2>/dev/null)" != "$pin" ]; then
	say "building the Kubernetes API server (about 10 minutes on two cores, the first time)"
	log=$bin/kube-apiserver.log
	rm -f "$bin/kube-apiserver.pin"
	(cd test/setup/apiserver && exec go build -v -ldflags "-s -w" -o "$bin/kube-apiserver.new" .) >"$log" 2>&1 &
	build=$!
	trap 'kill $build 2>/dev/null || true' EXIT
	begun=$(date +%s)
	told=$begun
	while kill -0 "$build" 2>/dev/null; do
		sleep 1
		now=$(date +%s)
		if [ $((now - told)) -ge 30 ]; then
			told=$now
			say "    $((now - begun)) s: $(grep -vc '^go: ' "$log" || true) packages compiled, of about 1,500"
		fi
	done
	wait "$build" || { tail -n 20 "$log" >&2; fail "the API server could not be built"; }
	trap - EXIT
	mv "$bin/kube-apiserver.new" "$bin/kube-apiserver"
	echo "$pin" >"$bin/kube-apiserver.pin"
	rm -f "$log"
fi
say "kube-apiserver at .tools/bin/kube-apiserver"

if [ "$(go version -m "$bin/helm" 2>/dev/null | awk '$1 == "mod" {print $3}')" != "$HELM" ]; then
	say "building Helm $HELM (about two minutes)"
	GOBIN=$bin go install "helm.sh/helm/v3/cmd/helm@$HELM"
fi
say "helm $HELM at .tools/bin/helm"

# crds NAME MODULE VERSION FILES: copies CRDs from a module, which go verifies by its checksum database.
crds() {
	name=$1 module=$2 version=$3 files=$4
	if [ "$(cat ".tools/crds/$name/VERSION" 2>/dev/null)" = "$version" ]; then return; fi
	say "fetching the CRDs of $module $version"
	go mod download "$module@$version"
	rm -rf ".tools/crds/$name"
	mkdir -p ".tools/crds/$name"
	# shellcheck disable=SC2086 # a pattern
	cp "$(go env GOMODCACHE)/$module@$version"/$files ".tools/crds/$name/"
	chmod -R u+w ".tools/crds/$name"
	rm -f ".tools/crds/$name/kustomization.yaml"
	echo "$version" >".tools/crds/$name/VERSION"
}
crds gateway-api sigs.k8s.io/gateway-api "$GATEWAY_API" 'config/crd/standard/*.yaml'
crds envoy-gateway github.com/envoyproxy/gateway "$ENVOY_GATEWAY" 'charts/gateway-helm/charts/crds/crds/generated/*.yaml'
crds cert-manager github.com/cert-manager/cert-manager "$CERT_MANAGER" 'deploy/crds/*.yaml'
crds prometheus-operator github.com/prometheus-operator/prometheus-operator "$PROMETHEUS_OPERATOR" 'example/prometheus-operator-crd/*_podmonitors.yaml'
say "CRDs in .tools/crds"
