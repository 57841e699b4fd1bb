{{/* The name of every object: the name of the release, which contains "channeld" once. */}}
{{- define "channeld.name" -}}
{{- if contains "channeld" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-channeld" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The labels that select the pods of this release. */}}
{{- define "channeld.selector" -}}
app.kubernetes.io/name: channeld
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "channeld.labels" -}}
{{ include "channeld.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "channeld.secret" -}}
{{- if .Values.secret.files }}{{ include "channeld.name" . }}{{ else }}{{ .Values.secret.name }}{{ end }}
{{- end }}

{{/* Whether several instances share the channels. */}}
{{- define "channeld.shared" -}}
{{- if gt (int .Values.instances) 1 }}true{{ end }}
{{- end }}
