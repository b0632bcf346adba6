#!/bin/sh
# Renders each shape of deploy/shapes by its chart into a folder, deploy/yaml by default: plain YAML for who has no Helm.
# HELM says which Helm: default .tools/bin/helm, else the one on PATH.
set -eu
cd "$(dirname "$0")"
out=${1:-yaml}
helm=${HELM:-../.tools/bin/helm}
[ -x "$helm" ] || helm=$(command -v helm) || { echo "helm is missing: go install helm.sh/helm/v3/cmd/helm@latest" >&2; exit 1; }
mkdir -p "$out"
for values in shapes/*.yaml; do
  shape=$(basename "$values" .yaml)
  case $shape in hub-*) chart=spokegate-hub release=spokegate-hub ;; *) chart=spokegate-spoke release=spokegate ;; esac
  # Helm's own version of Kubernetes is a matter of how it was built.
  "$helm" template "$release" "helm/$chart" --namespace "$release" --kube-version 1.33.0 --values "$values" > "$out/.$shape"
  {
    sed -n '/^#/p;/^#/!q' "$values"
    echo "# Rendered from deploy/helm/$chart with deploy/shapes/$shape.yaml by \`make yaml\`: changes here are lost."
    echo "# kubectl apply --namespace $release --filename $shape.yaml"
    sed '/^ *$/d;/^# Source: /d' "$out/.$shape" # lines of blanks are what templates leave
  } > "$out/$shape.yaml"
  rm "$out/.$shape"
done
