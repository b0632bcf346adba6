#!/bin/sh
# Makes sure that redis-server is there for the tests: Redis 7.0 or newer. Installs Debian's when it is missing.
set -eu

say() { echo "==> $*"; }
fail() { echo "redis-server: $*" >&2; exit 1; }

if ! command -v redis-server >/dev/null; then
	command -v apt-get >/dev/null || fail "missing, and there is no apt-get here to install it with; install Redis 7.0 or newer and put redis-server on PATH"
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || fail "missing, and installing it needs root or sudo; run as root: apt-get install redis-server"
		sudo=sudo
	fi
	say "installing redis-server with ${sudo:+sudo }apt-get (the tests start servers of their own and leave Debian's service alone)"
	# Lists may be old or absent. A failed update is told only if the install fails too.
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the package lists that are here"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null ||
		fail "apt-get could not install it; see above, or install Redis 7.0 or newer by hand and put redis-server on PATH"
fi

version=$(redis-server --version | sed -n 's/.*v=\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
case ${version%% *} in
'' | [0-6]) fail "version 7.0 or newer is needed, $(command -v redis-server) is: $(redis-server --version)" ;;
esac
say "redis-server $(redis-server --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p') at $(command -v redis-server)"
