#!/bin/sh
# Builds both images from the last commit with whichever of docker, podman and buildah works here.
# REGISTRY (ghcr.io/spokegate), VERSION (git describe), GO_IMAGE, STATIC_IMAGE and ENVOY_IMAGE say what and from what; pin the last
# three by digest for images that others can build again to the byte.
set -eu
cd "$(dirname "$0")/.."
registry=${REGISTRY:-ghcr.io/spokegate}
version=${VERSION:-$(git describe --tags --always)}
tool=
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then tool=docker
elif command -v podman >/dev/null; then tool=podman
elif command -v buildah >/dev/null; then tool=buildah
fi
if [ -z "$tool" ]; then
  echo "No images can be built here: there is no podman, no buildah, and no docker whose daemon answers." >&2
  echo "What they hold can: deploy/build.sh OUT VERSION builds the same binary, byte by byte, and OUT version -sbom prints its SBOM." >&2
  exit 1
fi
# What is committed, and nothing that lies about.
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
git archive HEAD | tar -x -C "$context"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
set -- --file deploy/Containerfile --build-arg VERSION="$version" --build-arg SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH"
for arg in GO_IMAGE STATIC_IMAGE ENVOY_IMAGE; do
  eval "value=\${$arg:-}"
  [ -z "$value" ] || set -- "$@" --build-arg "$arg=$value"
done
cd "$context"
for target in spokegate spokegate-envoy; do
  echo "==> $registry/$target:$version, with $tool"
  case $tool in
    docker) docker build "$@" --target "$target" --tag "$registry/$target:$version" . ;;
    podman) podman build "$@" --timestamp "$SOURCE_DATE_EPOCH" --target "$target" --tag "$registry/$target:$version" . ;;
    buildah) buildah build "$@" --timestamp "$SOURCE_DATE_EPOCH" --target "$target" --tag "$registry/$target:$version" . ;;
  esac
done
