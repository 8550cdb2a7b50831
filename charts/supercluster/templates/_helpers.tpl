{{- define "supercluster.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "supercluster.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "supercluster.name" .) }}
{{- end }}

{{- define "supercluster.selectorLabels" -}}
app.kubernetes.io/name: supercluster-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "supercluster.labels" -}}
{{ include "supercluster.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* An image: a list of its values and the version to take where they name none. */}}
{{- define "supercluster.image" -}}
{{- $image := first . -}}
{{ $image.repository }}:{{ $image.tag | default (last .) }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "supercluster.roleName" -}}
supercluster-operator
{{- end }}

{{/* The namespaces that are served, as JSON; none: all of them. */}}
{{- define "supercluster.namespaces" -}}
{{- if .Values.allNamespaces -}}
[]
{{- else -}}
{{ .Values.namespaces | default (list .Release.Namespace) | toJson }}
{{- end -}}
{{- end }}

{{/* A release for all namespaces and one for some of them: their roles have different kinds, so helm does not refuse by itself. */}}
{{- define "supercluster.refuseOverlap" -}}
{{- if and .Values.allNamespaces .Values.namespaces }}
{{- fail "allNamespaces is true, so namespaces has to be empty" }}
{{- end }}
{{- $role := include "supercluster.roleName" . }}
{{- $there := list }}
{{- if .Values.allNamespaces }}
{{- $there = (lookup "rbac.authorization.k8s.io/v1" "Role" "" "").items | default list }}
{{- else if .Values.nodeAccess }}
{{- $there = list (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $role) }}
{{- end }}
{{- range $there }}
{{- $metadata := .metadata | default dict }}
{{- $of := $metadata.annotations | default dict }}
{{- $release := printf "%s/%s" (index $of "meta.helm.sh/release-namespace" | default "") (index $of "meta.helm.sh/release-name" | default "") }}
{{- if and (eq ($metadata.name | default "") $role) (ne $release (printf "%s/%s" $.Release.Namespace $.Release.Name)) }}
{{- fail (printf "release %s serves %s already: two operators would fight over the same resources" $release ($metadata.namespace | default "every namespace")) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of all operators that were to serve a namespace one acts there, whatever installed them: the one with this Lease. */}}
{{- define "supercluster.leaseRules" -}}
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["supercluster-operator"]
  verbs: ["get", "update"]
{{- end }}

{{/* What the operator does in a namespace that it serves: these rights and no more. */}}
{{- define "supercluster.rules" -}}
- apiGroups: ["supercluster.dev"]
  resources: ["superclusters", "clusters", "streams", "streammoves", "migrations", "users"]
  # patch is for finalizers; nothing but the status is written otherwise.
  verbs: ["get", "list", "watch", "patch"]
- apiGroups: ["supercluster.dev"]
  resources: ["replicapolicies", "streampipelines"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["supercluster.dev"]
  # A Stream whose placement changes makes a move for itself, and withdraws it when it changes again.
  resources: ["streammoves"]
  verbs: ["create", "delete"]
- apiGroups: ["supercluster.dev"]
  resources: ["superclusters/status", "clusters/status", "streams/status", "streammoves/status", "replicapolicies/status", "streampipelines/status", "migrations/status", "users/status"]
  verbs: ["patch"]
- apiGroups: ["supercluster.dev"]
  # For owner references that block deletion; nothing is owned by moves and policies.
  resources: ["superclusters/finalizers", "clusters/finalizers", "streams/finalizers", "streampipelines/finalizers", "users/finalizers"]
  verbs: ["update"]
- apiGroups: [""]
  resources: ["services", "configmaps", "secrets"]
  verbs: ["get", "list", "watch", "create", "patch"]
- apiGroups: [""]
  resources: ["pods", "persistentvolumeclaims"]
  verbs: ["get", "list", "watch", "delete"]
- apiGroups: [""]
  # A larger spec.storage.size of a Cluster; the checkpoint of a StreamPipeline.
  resources: ["persistentvolumeclaims"]
  verbs: ["create", "patch"]
- apiGroups: ["apps"]
  resources: ["statefulsets"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: ["batch"]
  # Drivers of StreamPipelines.
  resources: ["jobs", "cronjobs"]
  verbs: ["get", "list", "watch", "create", "patch", "delete"]
- apiGroups: ["policy"]
  resources: ["poddisruptionbudgets"]
  verbs: ["get", "list", "watch", "create", "patch"]
- apiGroups: [""]
  resources: ["events"]
  verbs: ["get", "create", "patch"]
{{- end }}

{{/* What the driver of a StreamPipeline does in its namespace: make, find and remove its executors, and hold its checkpoint. */}}
{{- define "supercluster.driverRules" -}}
- apiGroups: [""]
  resources: ["pods"]
  # patch is for the progress on the driver's own pod.
  verbs: ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["get", "create", "update", "delete"]
{{- end }}

{{- define "supercluster.driverLabels" -}}
app.kubernetes.io/name: supercluster-driver
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
