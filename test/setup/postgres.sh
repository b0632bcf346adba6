#!/bin/sh
# Makes sure that a PostgreSQL server is there for the tests: 13 or newer. Installs Debian's when it is missing.
set -eu

say() { echo "==> $*"; }
fail() { echo "postgres: $*" >&2; exit 1; }

# Debian has no server on PATH: a folder a version.
find_postgres() { ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -t/ -k5 -n | tail -n 1; command -v postgres || true; }

postgres=$(find_postgres | head -n 1)
if [ -z "$postgres" ]; then
	command -v apt-get >/dev/null || fail "missing, and there is no apt-get here to install it with; install PostgreSQL 13 or newer and put postgres on PATH"
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || fail "missing, and installing it needs root or sudo; run as root: apt-get install postgresql"
		sudo=sudo
	fi
	say "installing postgresql with ${sudo:+sudo }apt-get (the tests start servers of their own and leave Debian's service alone)"
	# Lists may be old or absent. A failed update is told only if the install fails too.
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the package lists that are here"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null ||
		fail "apt-get could not install it; see above, or install PostgreSQL 13 or newer by hand and put postgres on PATH"
	postgres=$(find_postgres | head -n 1)
	[ -n "$postgres" ] || fail "it was installed, and is not to be found"
fi

version=$("$postgres" --version | sed -n 's/.*PostgreSQL) \([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 13 ] || fail "version 13 or newer is needed, $postgres is: $("$postgres" --version)"
say "$("$postgres" --version) at $postgres"
