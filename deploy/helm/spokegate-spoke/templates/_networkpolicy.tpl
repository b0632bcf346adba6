{{- define "sg.netpol" }}
---
# {{ .says }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "sg.name" .root }}-{{ .name }}
  labels:
    app.kubernetes.io/name: spokegate
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/managed-by: {{ .root.Release.Service }}
spec:
  {{- dict "podSelector" (dict "matchLabels" .pods) | toYaml | nindent 2 }}
  policyTypes: {{ toJson .types }}
  {{- with .ingress }}
  ingress: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .egress }}
  egress: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- define "sg.tcp" }}{{ range . }}
- {protocol: TCP, port: {{ . }}}{{ end }}{{ end }}
{{- /* An egress rule to what is outside: {to: peers or nobody named, ports: list}. */ -}}
{{- define "sg.outside" }}
- {{ if .to }}to: {{- toYaml .to | nindent 4 }}
  {{ end }}ports: {{- include "sg.tcp" .ports | trim | nindent 4 }}
{{- end }}
