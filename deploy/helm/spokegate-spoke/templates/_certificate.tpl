{{- define "sg.certificate" }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .secret }}
  labels: {{- include "sg.labels" (dict "root" .root "component" "door") | nindent 4 }}
spec:
  secretName: {{ .secret }}
  issuerRef: {{- toYaml .issuer | nindent 4 }}
  duration: 2160h
  renewBefore: 720h
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  usages: {{ toJson .usages }}
  dnsNames: {{- toYaml .names | nindent 4 }}
{{- end }}
