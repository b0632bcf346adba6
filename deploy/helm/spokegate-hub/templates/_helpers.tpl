{{- define "hub.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}

{{- define "hub.selector" -}}
app.kubernetes.io/name: spokegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: hub
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "hub.apiSecret" -}}{{ .Values.api.tls.secretName | default (printf "%s-api" (include "hub.name" .)) }}{{- end }}
{{- define "hub.pushSecret" -}}{{ .Values.push.tls.secretName | default (printf "%s-push" (include "hub.name" .)) }}{{- end }}

{{- /* What does not go together, and what is not safe unless it is named. */ -}}
{{- define "hub.check" -}}
{{- with .Values }}
{{- if not (or .push.tls.secretName (.push.tls.issuerRef).name) }}
{{- fail "push.tls: doors know the hub by certificates, and it knows them: give secretName (tls.crt, tls.key, ca.crt) or issuerRef of cert-manager" }}{{ end }}
{{- $api := or .api.tls.secretName (.api.tls.issuerRef).name }}
{{- if and (not .api.plaintext) (not $api) }}
{{- fail "api: admin tokens would cross the network unencrypted: give api.tls.secretName or api.tls.issuerRef, or say api.plaintext=true where the network itself encrypts" }}{{ end }}
{{- if and .api.plaintext $api }}{{ fail "api: plaintext and tls exclude each other" }}{{ end }}
{{- with .database.postgres }}
{{- if and (not .url) (or .secretName .to) }}{{ fail "database.postgres.url is missing: postgres://USER@HOST/NAME" }}{{ end }}
{{- $url := .url | default "" }}
{{- if regexMatch "^postgres(ql)?://[^/@]*:[^/@]*@" $url }}{{ fail "database.postgres.url: keep the password out of it; database.postgres.secretName names its secret" }}{{ end }}
{{- $at := regexFind "^[a-z]+://[^/?]*" $url | regexFind ":[0-9]+$" | trimPrefix ":" }}
{{- if and $at (ne (int $at) (int .port)) $.Values.networkPolicy.enabled }}{{ fail (printf "database.postgres.port: the url has %s, and the network policy lets %d through" $at (int .port)) }}{{ end }}
{{- end }}
{{- if and (or (kindIs "invalid" .replicas) (gt (int .replicas) 1)) (not .database.postgres.url) }}{{ fail "replicas: SQLite is one hub's; several want database.postgres.url" }}{{ end }}
{{- end }}
{{- end }}
