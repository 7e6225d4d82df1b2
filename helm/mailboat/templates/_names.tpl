{{- define "mailboat.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "mailboat.account" -}}
{{ .Values.serviceAccount.name | default (include "mailboat.name" .) }}
{{- end }}

{{- define "mailboat.selector" -}}
app.kubernetes.io/name: mailboat-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "mailboat.labels" -}}
{{ include "mailboat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: mailboat
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mailboat.image" -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .chart.AppVersion) }}
{{- end }}
