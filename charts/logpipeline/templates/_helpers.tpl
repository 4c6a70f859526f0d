{{/* Names and labels: one place for what several templates say. */}}

{{- define "logpipeline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 40: "-operator" and the hashes of Deployment and pod have to fit into a label as well. */}}
{{- define "logpipeline.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "logpipeline.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "logpipeline.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "logpipeline.operator" -}}
{{- include "logpipeline.fullname" . }}-operator
{{- end -}}

{{- define "logpipeline.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "logpipeline.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- /* Not `default`: each pod of the namespace that names no account has that. */}}
{{- required "serviceAccount.create is false: name an account of yours in serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The name is fixed: the NetworkPolicies of pipelines let the operator in by it. */}}
{{- define "logpipeline.selectorLabels" -}}
app.kubernetes.io/name: logpipeline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "logpipeline.labels" -}}
{{ include "logpipeline.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: logpipeline
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object, of (dict "root" $ "name" … "labels" … "annotations" … "namespace" …);
     a namespace "-" is for objects of the whole cluster. */}}
{{- define "logpipeline.metadata" -}}
name: {{ .name }}
{{- if ne (default "" .namespace) "-" }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- $labels := include "logpipeline.labels" .root | fromYaml }}
  {{- toYaml (mergeOverwrite $labels (default dict .labels)) | nindent 2 }}
{{- with mergeOverwrite (dict) .root.Values.commonAnnotations (default dict .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image, of (dict "root" $ "image" …): what it leaves empty is as the operator's. */}}
{{- define "logpipeline.image" -}}
{{- $image := .image -}}
{{- $common := .root.Values.image -}}
{{- $registry := coalesce .root.Values.global.imageRegistry $image.registry $common.registry | default "" -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (coalesce $image.tag $common.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "logpipeline.pullSecrets" -}}
{{- concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq | toYaml -}}
{{- end -}}

{{/* "true", or nothing. */}}
{{- define "logpipeline.hasShipperRole" -}}
{{- if .Values.rbac.create -}}
{{- if kindIs "invalid" .Values.rbac.shipperMetadata -}}
{{- if not .Values.watchNamespaces }}true{{ end -}}
{{- else if .Values.rbac.shipperMetadata }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- define "logpipeline.shipperRole" -}}
{{- include "logpipeline.fullname" . }}-shipper
{{- end -}}

{{- define "logpipeline.shipperOwnRole" -}}
{{- include "logpipeline.fullname" . }}-shipper-own
{{- end -}}

{{/* "true", or nothing. */}}
{{- define "logpipeline.hasSparkRole" -}}
{{- if and .Values.rbac.create .Values.rbac.sparkExecutors }}true{{ end -}}
{{- end -}}

{{- define "logpipeline.sparkRole" -}}
{{- include "logpipeline.fullname" . }}-spark
{{- end -}}

{{/* Where only some namespaces are watched, each has the role, and the cluster none. */}}
{{- define "logpipeline.roleKind" -}}
{{- ternary "Role" "ClusterRole" (not (empty .Values.watchNamespaces)) -}}
{{- end -}}

{{/* Where `helm test` has its LogPipeline. */}}
{{- define "logpipeline.testNamespace" -}}
{{- $first := first .Values.watchNamespaces -}}
{{- if .Values.test.namespace -}}
{{- .Values.test.namespace -}}
{{- else if or (not $first) (has .Release.Namespace .Values.watchNamespaces) -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- $first -}}
{{- end -}}
{{- end -}}

{{/* The rights of files/rbac.yaml under some of its headings, of (dict "root" $ "of" (list …)). */}}
{{- define "logpipeline.rules" -}}
{{- $root := .root -}}
{{- $text := .root.Files.Get "files/rbac.yaml"
      | replace "SHIPPER_CLUSTER_ROLE" (include "logpipeline.shipperRole" .root)
      | replace "SHIPPER_ROLE" (include "logpipeline.shipperOwnRole" .root)
      | replace "SPARK_ROLE" (include "logpipeline.sparkRole" .root)
      | replace "LEASE" (include "logpipeline.operator" .root) -}}
{{- $all := fromYaml $text -}}
{{- $rules := list -}}
{{- range .of -}}
{{- $rules = concat $rules (get $all .) -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end -}}
