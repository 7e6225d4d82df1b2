{{/* What the operator does in the namespaces that it serves: server-side apply needs create and patch. */}}
{{- define "mailboat.rules" -}}
- apiGroups: [mailboat.dev]
  resources: [publishers, subscriberpools, distributions]
  verbs: [get, list, watch]
- apiGroups: [mailboat.dev]  # patched for our finalizer alone
  resources: [journals, jobqueues, jobschedules]
  verbs: [get, list, watch, patch]
- apiGroups: [mailboat.dev]  # a Journal makes six, and deletes them with reclaimPolicy Delete
  resources: [topics]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [mailboat.dev]  # a schedule makes one for each of its times, and deletes old ones
  resources: [packagebuilds]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [mailboat.dev]
  resources:
    - journals/status
    - topics/status
    - publishers/status
    - subscriberpools/status
    - distributions/status
    - packagebuilds/status
    - jobqueues/status
    - jobschedules/status
  verbs: [patch]
- apiGroups: [mailboat.dev]  # children that block the deletion of their owner
  resources:
    - journals/finalizers
    - publishers/finalizers
    - subscriberpools/finalizers
    - packagebuilds/finalizers
    - jobqueues/finalizers
  verbs: [update]
- apiGroups: [mailboat.dev]  # those whose ttlSecondsAfterFinished is over
  resources: [distributions]
  verbs: [delete]
- apiGroups: [sparkoperator.k8s.io, spark.apache.org]  # where one of Spark's operators is installed
  resources: [sparkapplications]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [keda.sh]  # where KEDA is installed
  resources: [scaledobjects, triggerauthentications]
  verbs: [get, create, patch, delete]
- apiGroups: [apps]  # children go with their owner: the cluster deletes them
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]  # deleted when a JobQueue has no workers any more
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]  # listed and watched by our label, so that drift is seen at once
  resources: [configmaps, services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [autoscaling]  # deleted when a pool or the workers of a queue are no longer scaled
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]  # deleted when agentNetworkPolicy is turned off
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]  # enlarged when the size of a volume grows
  resources: [persistentvolumeclaims]
  verbs: [list, patch]
- apiGroups: [""]  # read by name, never listed
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]  # why a pod does not start: listed by the labels of one workload
  resources: [pods]
  verbs: [list]
- apiGroups: [""]  # listed for one pod or StatefulSet that has not started; patched to count an Event that repeats
  resources: [events]
  verbs: [list, create, patch]
{{- end }}
