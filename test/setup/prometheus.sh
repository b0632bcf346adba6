#!/bin/sh
# Makes sure that prometheus and promtool are there for the tests: 2.42 or newer. Installs Debian's when they are missing.
set -eu

say() { echo "==> $*"; }
fail() { echo "prometheus: $*" >&2; exit 1; }

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
	command -v apt-get >/dev/null || fail "missing, and there is no apt-get here to install it with; install Prometheus 2.42 or newer and put prometheus and promtool on PATH"
	[ "$(id -u)" -eq 0 ] || fail "missing, and installing it needs root; run as root: apt-get install prometheus"
	say "installing prometheus with apt-get (the tests start servers of their own and leave Debian's service alone)"
	# Lists may be old or absent. A failed update is told only if the install fails too.
	apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the package lists that are here"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null ||
		fail "apt-get could not install it; see above, or install Prometheus 2.42 or newer by hand"
fi

version=$(prometheus --version 2>&1 | sed -n 's/^prometheus, version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
major=${version% *} minor=${version#* }
[ -n "$version" ] && { [ "$major" -gt 2 ] || [ "$minor" -ge 42 ]; } || fail "2.42 or newer is needed, $(command -v prometheus) is: $(prometheus --version 2>&1 | head -n 1)"
say "prometheus $major.$minor at $(command -v prometheus)"
