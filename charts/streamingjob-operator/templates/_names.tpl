{{- define "operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "operator.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "operator.name" .) -}}
{{- end -}}

{{/* Where the job of `helm test` runs: somewhere the operator watches, and with the release if that is watched. */}}
{{- define "operator.testNamespace" -}}
{{- if or (not .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces) -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- first .Values.watchNamespaces -}}
{{- end -}}
{{- end -}}

{{- define "operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: streamingjob-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Every verb the operator uses on what belongs to a job, wherever the job is. */}}
{{- define "operator.jobRules" -}}
# Jobs are watched; the finalizer is the only thing of theirs that is written outside of their status.
- apiGroups: [streamingjob.dev]
  resources: [streamingjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [streamingjob.dev]
  resources: [streamingjobs/status]
  verbs: [update]
# Driver pods; and what a driver's own role allows, since nobody can give rights that they do not have.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, delete, deletecollection]
# What a job needs is read before it is made or changed, so that nothing of somebody else's is taken over.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
# Created for what happens to a job, listed for why a pod does not start.
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]
{{- if .Values.jobs.serviceAccounts }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}
