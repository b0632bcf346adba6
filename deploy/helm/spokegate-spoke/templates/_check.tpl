{{- /* What does not go together, and what is not safe unless it is named. */ -}}
{{- define "sg.check" -}}
{{- with .Values }}
{{- if .doors.enabled }}
{{- $sources := 0 }}
{{- range list .policy.inline .policy.configMap .hub.address }}{{ if . }}{{ $sources = add1 $sources }}{{ end }}{{ end }}
{{- if ne (int $sources) 1 }}{{ fail "policy: say where doors have it from: one of policy.inline, policy.configMap and hub.address" }}{{ end }}
{{- if and (not .hub.address) (or .hub.maxAge .doors.gpus .doors.labels) }}{{ fail "hub.maxAge, doors.gpus and doors.labels are between doors and a hub: give hub.address" }}{{ end }}
{{- range regexSplit "," (.doors.gpus | default "") -1 }}
{{- $many := regexReplaceAll "^.*=" . "" | splitList "/" }}
{{- if gt (int (last $many)) (int (first $many)) }}{{ fail (printf "doors.gpus: %s: more are free than there are" .) }}{{ end }}
{{- end }}
{{- if and .hub.address (not (or .hub.tls.secretName (.hub.tls.issuerRef).name)) }}
{{- fail "hub.tls: doors are known to the hub by certificates: give secretName (tls.crt, tls.key, ca.crt), or issuerRef of cert-manager" }}{{ end }}
{{- if and (not .clients.plaintext) (not (or .clients.tls.secretName (.clients.tls.issuerRef).name)) }}
{{- fail "clients: keys would cross the network unencrypted: give clients.tls.secretName or clients.tls.issuerRef, or say clients.plaintext=true where TLS ends before the doors" }}{{ end }}
{{- if and .clients.plaintext (or .clients.tls.secretName (.clients.tls.issuerRef).name) }}{{ fail "clients: plaintext and tls exclude each other" }}{{ end }}
{{- if and (.clients.tls.issuerRef).name (not .clients.tls.dnsNames) }}{{ fail "clients.tls.dnsNames: say what clients call the doors" }}{{ end }}
{{- end }}
{{- if or .doors.enabled .workers }}
{{- if and .fleet.plaintext (or (.fleet.tls.issuerRef).name .fleet.tls.doorSecretName .fleet.tls.workerVolume) }}{{ fail "fleet: plaintext and tls exclude each other" }}{{ end }}
{{- if and (not .fleet.plaintext) (not (.fleet.tls.issuerRef).name) (not (and .fleet.tls.doorSecretName .fleet.tls.workerVolume)) }}
{{- fail "fleet: prompts and the join token would cross the network unencrypted: give fleet.tls.issuerRef (cert-manager and its CSI driver), or fleet.tls.doorSecretName and fleet.tls.workerVolume, or say fleet.plaintext=true where the network itself encrypts" }}{{ end }}
{{- end }}
{{- if and (not .kafka.brokers) (or .kafka.tls .kafka.tlsSecretName .kafka.sasl.mechanism) }}{{ fail "kafka: tls and sasl towards whom? Without brokers records stay in the pods" }}{{ end }}
{{- if and .reconcile.enabled (not .kafka.brokers) }}{{ fail "reconcile: it reads Kafka: give kafka.brokers" }}{{ end }}
{{- if and (not .redis.secretName) .redis.to }}{{ fail "redis.to without redis.secretName: doors would count each by itself" }}{{ end }}
{{- if and .kafka.sasl.mechanism (not (and .kafka.sasl.user .kafka.sasl.secretName)) }}{{ fail "kafka.sasl: a mechanism wants user and secretName" }}{{ end }}
{{- if and (eq .kafka.sasl.mechanism "plain") (not .kafka.tls) }}{{ fail "kafka.sasl: plain tells the password to everybody on the way: set kafka.tls, or take scram-sha-512" }}{{ end }}
{{- if and .doors.enabled .fleet.doors.address }}{{ fail "fleet.doors is for doors that are not this chart's: leave it empty where doors.enabled=true" }}{{ end }}
{{- if and .kafka.brokers .networkPolicy.enabled }}{{ range splitList "," .kafka.brokers }}
{{- $port := int (include "sg.port" .) }}{{ $open := false }}{{ range $.Values.kafka.ports }}{{ if eq (int .) $port }}{{ $open = true }}{{ end }}{{ end }}
{{- if not $open }}{{ fail (printf "kafka.ports: the network policy does not let %s through" .) }}{{ end }}
{{- end }}{{ end }}
{{- if and .kafka.tlsSecretName (not .kafka.tls) }}{{ fail "kafka.tlsSecretName goes with kafka.tls=true" }}{{ end }}
{{- end }}
{{- $seen := dict }}
{{- range .Values.workers }}
{{- $w := include "sg.filled" (dict "item" . "defaults" $.Values.workerDefaults) | fromYaml }}
{{- if hasKey $seen $w.name }}{{ fail (printf "workers: there are two of the name %s" $w.name) }}{{ end }}
{{- if eq $w.name "door" }}{{ fail "workers[door].name: the doors' own objects have that name" }}{{ end }}
{{- $_ := set $seen $w.name true }}
{{- if and (ne $w.engine.kind "sim") (not $w.engine.image) }}{{ fail (printf "workers[%s].engine.image: which image has %s?" $w.name $w.engine.kind) }}{{ end }}
{{- if and (ne $w.engine.kind "sim") (not $w.engine.model) }}{{ fail (printf "workers[%s].engine.model: which model is it to load?" $w.name) }}{{ end }}
{{- if and (gt (int $w.engine.ranks) 1) (ne $w.engine.kind "vllm") (ne $w.engine.kind "sim") }}{{ fail (printf "workers[%s].engine.ranks: %s takes no rank from a request" $w.name $w.engine.kind) }}{{ end }}
{{- if and $w.engine.servedName (has $w.engine.kind (list "trtllm" "sim")) }}{{ fail (printf "workers[%s].engine.servedName: %s serves under the name of its model" $w.name $w.engine.kind) }}{{ end }}
{{- if not (or $.Values.doors.enabled $.Values.fleet.doors.address) }}{{ fail "workers: a shim serves only what a door has admitted: set doors.enabled=true, or say in fleet.doors where the doors are" }}{{ end }}
{{- if and $.Values.doors.enabled (lt (int64 $w.bodyLimit) (int64 $.Values.doors.bodyLimit)) }}{{ fail (printf "workers[%s].bodyLimit: it would refuse what doors let through (doors.bodyLimit)" $w.name) }}{{ end }}
{{- range $arg := $w.engine.args }}
{{- if regexMatch "^--(host|port|uds|api-key)(=|$)" $arg }}{{ fail (printf "workers[%s].engine.args: %s would open the engine beside its shim" $w.name $arg) }}{{ end }}
{{- end }}
{{- end }}
{{- range .Values.pickers }}
{{- $p := include "sg.filled" (dict "item" . "defaults" $.Values.pickerDefaults) | fromYaml }}
{{- if hasKey $seen $p.name }}{{ fail (printf "pickers: there are two of the name %s, of pickers and workers: their objects would be the same" $p.name) }}{{ end }}
{{- if has $p.name (list "door" "doors" "worker" "usage-reconcile") }}{{ fail (printf "pickers[%s].name: objects of the chart have that name" $p.name) }}{{ end }}
{{- $_ := set $seen $p.name true }}
{{- if and (not $p.plaintext) (not $p.tls.selfSigned) (not $p.tls.secretName) }}
{{- fail (printf "pickers[%s]: prompts would cross the network unencrypted: set tls.selfSigned or tls.secretName, or say plaintext=true where the network itself encrypts" $p.name) }}{{ end }}
{{- if and $p.pool.create (not $p.pool.selector) }}{{ fail (printf "pickers[%s].pool.selector: which pods are in the pool? Those of workers are not: they join doors" $p.name) }}{{ end }}
{{- if and $.Values.networkPolicy.enabled (not $p.pool.selector) (not $p.egress) }}
{{- fail (printf "pickers[%s].pool.selector: no network policy lets the picker reach pods that it does not name: give their labels, or rules in egress" $p.name) }}{{ end }}
{{- if and $p.modelDir (not $p.modelsClaim) }}{{ fail (printf "pickers[%s].modelDir is a folder on modelsClaim, which is not given" $p.name) }}{{ end }}
{{- end }}
{{- end }}
