{{- define "sg.engineCommand" -}}
{{- if eq . "vllm" }}["vllm", "serve"]
{{- else if eq . "sglang" }}["python3", "-m", "sglang.launch_server"]
{{- else }}["trtllm-serve", "serve"]
{{- end }}
{{- end }}

{{- /* What an engine is told: to listen on the pod's loopback, where its shim alone finds it, and to publish its KV events there. */ -}}
{{- define "sg.engineArgs" -}}
{{- $e := .w.engine }}
{{- $model := $e.model | replace "$(" "$$(" | quote }}
{{- if eq $e.kind "sglang" }}
- --model-path
{{- end }}
- {{ $model }}
- --host=127.0.0.1
- --port=8000
{{- if eq $e.kind "vllm" }}
- --enable-prefix-caching
- --enable-prompt-tokens-details
{{- if .events }}
- '--kv-events-config={"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"ipc:///run/engine/kv","replay_endpoint":"ipc:///run/engine/replay"}'
{{- end }}
{{- with $e.servedName }}
- --served-model-name
- {{ . | quote }}
{{- end }}
{{- if gt (int $e.ranks) 1 }}
- --data-parallel-size={{ int $e.ranks }}
{{- end }}
{{- else if eq $e.kind "sglang" }}
- --enable-metrics
{{- with $e.servedName }}
- --served-model-name
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A worker's own certificate: the pod's name is in it, and nobody else has the key. */ -}}
{{- define "sg.workerTLS" -}}
{{- with .Values.fleet.tls }}
{{- if .workerVolume }}
{{- toYaml .workerVolume }}
{{- else -}}
csi:
  driver: csi.cert-manager.io
  readOnly: true
  volumeAttributes:
    csi.cert-manager.io/issuer-name: {{ (.issuerRef).name }}
    csi.cert-manager.io/issuer-kind: {{ (.issuerRef).kind | default "Issuer" }}
    csi.cert-manager.io/issuer-group: {{ (.issuerRef).group | default "cert-manager.io" }}
    csi.cert-manager.io/dns-names: ${POD_NAME}
    csi.cert-manager.io/uri-names: spiffe://{{ $.Values.spoke }}/worker/${POD_NAME}
    csi.cert-manager.io/duration: 24h
    csi.cert-manager.io/key-usages: digital signature,server auth,client auth
    csi.cert-manager.io/fs-group: "65532"
{{- end }}
{{- end }}
{{- end }}
