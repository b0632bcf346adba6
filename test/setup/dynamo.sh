#!/bin/sh
# Installs NVIDIA Dynamo's mocker and indexer into .tools/dynamo: a second source of KV events in vLLM's form, and another's
# opinion of them. Half a GB, a minute. Does nothing when what is pinned is there. Needs Python 3.10 or newer.
set -eu

VERSION=1.6.1
UV=0.13.9

cd "$(dirname "$0")/../.."
home=$PWD/.tools/dynamo
fail() { echo "dynamo.sh: $*" >&2; exit 1; }

if [ "$(cat "$home/pin" 2>/dev/null)" = "$VERSION" ]; then
	echo "==> Dynamo is in .tools/dynamo"
	exit 0
fi
found=
for p in python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12; do
	if "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then found=$p; break; fi
done
[ -n "$found" ] || fail "Python is missing: install python3, 3.10 or newer, with venv and pip"
echo "==> installing Dynamo $VERSION into .tools/dynamo (half a GB, a minute)"
rm -rf "$home"
"$found" -m venv "$home"
"$home/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV" || fail "pip could not fetch uv: see above"
# aisimulate is in no registry, and the mocker does without.
echo 'aisimulate ; python_version < "3"' >"$home/override"
"$home/bin/uv" pip install --quiet --python "$home/bin/python" --override "$home/override" "ai-dynamo==$VERSION" ||
	fail "the packages could not be installed: see above"
echo "$VERSION" >"$home/pin"
