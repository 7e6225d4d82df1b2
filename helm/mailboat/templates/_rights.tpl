{{/* What the operator does in the namespaces that it serves: server-side apply needs create and patch. */}}
{{- define "mailboat.rules" -}}
- apiGroups: [mailboat.dev]
  resources: [journals, publishers, subscriberpools, distributions]
  verbs: [get, list, watch]
- apiGroups: [mailboat.dev]  # a Journal makes five
  resources: [topics]
  verbs: [get, list, watch, create, patch]
- apiGroups: [mailboat.dev]
  resources: [journals/status, topics/status, publishers/status, subscriberpools/status, distributions/status]
  verbs: [patch]
- apiGroups: [mailboat.dev]  # children that block the deletion of their owner
  resources: [journals/finalizers, publishers/finalizers, subscriberpools/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, create, patch, delete]
- apiGroups: [""]  # read by name, never listed
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
