{{- define "sg.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}

{{- /* Labels that select: of (root, component). */ -}}
{{- define "sg.selector" -}}
app.kubernetes.io/name: spokegate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Labels of pods. The chart's version is not among them: each upgrade would start engines anew, for which nothing has changed. */ -}}
{{- define "sg.podLabels" -}}
{{ include "sg.selector" . }}
spokegate.io/spoke: {{ .root.Values.spoke }}
{{- end }}

{{- define "sg.labels" -}}
{{ include "sg.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
spokegate.io/spoke: {{ .root.Values.spoke }}
{{- end }}

{{- /* Labels that policies select by: all that runs for the spoke in this namespace, also what the hub has rendered. */ -}}
{{- define "sg.spokePods" -}}
app.kubernetes.io/name: spokegate
spokegate.io/spoke: {{ .root.Values.spoke }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "sg.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sg.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sg.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The pod's own name and address, for arguments. */ -}}
{{- define "sg.podEnv" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- define "sg.scrape" -}}
{{- if .root.Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/path: /metrics
prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- end }}

{{- /* Where pods run, of anything with these keys. */ -}}
{{- define "sg.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "sg.spread" -}}
{{- if .root.Values.topologySpread }}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $.select | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Liveness is that the process answers, and no more: a restart mends nothing that it waits for, be it an engine, Envoy, the hub
     or a store. Readiness says whether it can serve. */ -}}
{{- define "sg.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: ops}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /healthz, port: ops}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: {{ .ready }}, port: ops}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- define "sg.secretVolume" -}}
- name: {{ .name }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}

{{- define "sg.tls" -}}{{- if not .Values.fleet.plaintext }}true{{ end }}{{- end }}
{{- define "sg.doorsHost" -}}{{ include "sg.name" . }}-doors.{{ .Release.Namespace }}.svc{{- end }}
{{- /* Where workers join, and the name that they find in doors' certificates. */ -}}
{{- define "sg.joins" -}}{{ .Values.fleet.doors.address | default (printf "%s:8090" (include "sg.doorsHost" .)) }}{{- end }}
{{- define "sg.doorName" -}}{{ .Values.fleet.doors.name | default (include "sg.joins" . | splitList ":" | first) }}{{- end }}
{{- define "sg.clientsPort" -}}{{ ternary 8080 8443 .Values.clients.plaintext }}{{- end }}

{{- define "sg.fleetSecret" -}}{{ .Values.fleet.tls.doorSecretName | default (printf "%s-fleet" (include "sg.name" .)) }}{{- end }}
{{- define "sg.clientsSecret" -}}{{ .Values.clients.tls.secretName | default (printf "%s-clients" (include "sg.name" .)) }}{{- end }}
{{- define "sg.hubSecret" -}}{{ .Values.hub.tls.secretName | default (printf "%s-hub" (include "sg.name" .)) }}{{- end }}

{{- /* Kafka, for doors and shims alike. */ -}}
{{- define "sg.kafkaArgs" -}}
{{- with .Values.kafka }}
{{- if .brokers }}
- {{ printf "-kafka=%s" .brokers | quote }}
{{- if .tls }}
- -kafka-tls
{{- end }}
{{- if .tlsSecretName }}
- -kafka-ca=/etc/spokegate/kafka/ca.crt
{{- if .clientCertificate }}
- -kafka-cert=/etc/spokegate/kafka/tls.crt
- -kafka-key=/etc/spokegate/kafka/tls.key
{{- end }}
{{- end }}
{{- if .sasl.mechanism }}
- -kafka-sasl={{ .sasl.mechanism }}
- {{ printf "-kafka-user=%s" .sasl.user | quote }}
- {{ printf "-kafka-password-file=/etc/spokegate/kafka-sasl/%s" .sasl.key | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sg.shipMounts" -}}
{{- if .Values.kafka.brokers }}
{{- if .Values.kafka.tlsSecretName }}
- {name: kafka, mountPath: /etc/spokegate/kafka, readOnly: true}
{{- end }}
{{- if .Values.kafka.sasl.mechanism }}
- {name: kafka-sasl, mountPath: /etc/spokegate/kafka-sasl, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "sg.shipVolumes" -}}
{{- if .Values.kafka.brokers }}
{{- with .Values.kafka.tlsSecretName }}
{{ include "sg.secretVolume" (dict "name" "kafka" "secret" .) }}
{{- end }}
{{- if .Values.kafka.sasl.mechanism }}
{{ include "sg.secretVolume" (dict "name" "kafka-sasl" "secret" .Values.kafka.sasl.secretName) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A worker or picker with its defaults. */ -}}
{{- define "sg.filled" -}}
{{- $it := mergeOverwrite (deepCopy .defaults) (deepCopy .item) }}
{{- $_ := set $it "endpoint" ($it.endpoint | default $it.name) }}
{{- toYaml $it }}
{{- end }}

{{- /* An endpoint as a label: its own name, where that is one. */ -}}
{{- define "sg.endpointLabel" -}}{{ . | lower | replace "_" "-" | replace "@" "-" | replace "/" "-" | trunc 63 | trimSuffix "-" }}{{- end }}

{{- define "sg.port" -}}{{ splitList ":" . | last }}{{- end }}
