{{- define "sg.doorFlags" }}
{{- /* Those that the door and its Envoy must have in common. */}}
- -name=$(POD_NAME)
- {{ printf "-spoke=%s" .Values.spoke | quote }}
- -dir=/var/lib/spokegate
- -listen=0.0.0.0:{{ include "sg.clientsPort" . }}
- -admin=127.0.0.1:9901
- -body-limit={{ int64 .Values.doors.bodyLimit }}
- -log-level={{ .Values.doors.logLevel }}
{{- if .Values.clients.trustedHops }}
- -trusted-hops={{ int .Values.clients.trustedHops }}
{{- end }}
{{- if not .Values.clients.plaintext }}
- -tls-cert=/etc/spokegate/clients/tls.crt
- -tls-key=/etc/spokegate/clients/tls.key
{{- end }}
{{- if include "sg.tls" . }}
- -fleet-cert=/etc/spokegate/fleet/tls.crt
- -fleet-key=/etc/spokegate/fleet/tls.key
- -fleet-ca=/etc/spokegate/fleet/ca.crt
{{- end }}
{{- with .Values.otlp }}
{{- if .address }}
- {{ printf "-otlp=%s" .address | quote }}
- -trace-percent={{ .tracePercent }}
{{- end }}
{{- end }}
{{- end }}
{{- define "sg.doorEnvoyMounts" }}
{{- if not .Values.clients.plaintext }}
- {name: clients, mountPath: /etc/spokegate/clients, readOnly: true}
{{- end }}
{{- if include "sg.tls" . }}
- {name: fleet, mountPath: /etc/spokegate/fleet, readOnly: true}
{{- end }}
{{- end }}
