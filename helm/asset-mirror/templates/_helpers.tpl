{{- define "asset-mirror.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "asset-mirror.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "asset-mirror.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "asset-mirror.selector" -}}
app.kubernetes.io/name: {{ include "asset-mirror.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of objects, not of pods: the versions in them would restart all pods with each new chart. */}}
{{- define "asset-mirror.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "asset-mirror.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Host name of PUBLIC_URL, and its path. */}}
{{- define "asset-mirror.host" -}}
{{- regexReplaceAll ":[0-9]+$" (urlParse .Values.config.PUBLIC_URL).host "" -}}
{{- end -}}
{{- define "asset-mirror.path" -}}
{{- default "/" (urlParse .Values.config.PUBLIC_URL).path -}}
{{- end -}}

{{- define "asset-mirror.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "asset-mirror.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "asset-mirror.secret" -}}
{{- default (include "asset-mirror.fullname" .) .Values.existingSecret -}}
{{- end -}}

{{- define "asset-mirror.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration such as 500ms, 25s or 1m30s, rounded up. */}}
{{- define "asset-mirror.seconds" -}}
{{- $factors := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 "w" 604800.0 -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9.]+ *(ms|s|m|h|d|w)" . -1 -}}
{{- $total = addf $total (mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- ceil $total | int -}}
{{- end -}}

{{/* The Deployment of a role. Takes a dict of root, role and the values of that role. */}}
{{- define "asset-mirror.deployment" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "asset-mirror.fullname" $root) .role -}}
{{- $keda := and (eq .role "worker") .values.keda.enabled -}}
{{- $grace := include "asset-mirror.seconds" (default "25s" $root.Values.config.SHUTDOWN_GRACE) | int -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "asset-mirror.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
spec:
  {{- if not (or .values.autoscaling.enabled $keda) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ $root.Values.revisionHistoryLimit }}
  strategy:
    {{- toYaml (default (dict "rollingUpdate" (dict "maxSurge" 1 "maxUnavailable" 0)) $root.Values.strategy) | nindent 4 }}
  selector:
    matchLabels:
      {{- include "asset-mirror.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .role }}
  template:
    metadata:
      labels:
        {{- include "asset-mirror.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
        {{- with mergeOverwrite (dict) $root.Values.commonLabels .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # Changed settings restart the pods.
        checksum/config: {{ toJson $root.Values.config | sha256sum }}
        checksum/secret: {{ toJson $root.Values.secrets | sha256sum }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "asset-mirror.serviceAccount" $root }}
      automountServiceAccountToken: {{ $root.Values.serviceAccount.automount }}
      # Variables of other Services, such as METRICS_PORT of a Service "metrics", would change settings.
      enableServiceLinks: false
      # Longer than a stop takes: the sleep, SHUTDOWN_GRACE, and a running token refresh.
      terminationGracePeriodSeconds: {{ add $grace .values.preStopSeconds 65 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.hostAliases }}
      hostAliases:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.dnsConfig }}
      dnsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      {{- with $root.Values.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .role }}
          image: {{ include "asset-mirror.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [start, --role, {{ .role }}]
          securityContext:
            {{- toYaml $root.Values.securityContext | nindent 12 }}
          ports:
            {{- if eq .role "web" }}
            - { name: http, containerPort: 8080 }
            {{- end }}
            - { name: metrics, containerPort: {{ $root.Values.metrics.port }} }
          envFrom:
            - configMapRef: { name: {{ include "asset-mirror.fullname" $root }} }
            - secretRef: { name: {{ include "asset-mirror.secret" $root }} }
            {{- with $root.Values.extraEnvFrom }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- if or $root.Values.caCertificates.configMap $root.Values.extraEnv }}
          env:
            {{- if $root.Values.caCertificates.configMap }}
            - { name: NODE_EXTRA_CA_CERTS, value: /etc/asset-mirror/ca/{{ $root.Values.caCertificates.key }} }
            {{- end }}
            {{- with $root.Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
          # A process listens after the migrations, which one process runs while the others wait.
          startupProbe:
            httpGet: { path: /healthz, port: metrics }
            periodSeconds: 5
            failureThreshold: 120
          livenessProbe:
            httpGet: { path: /healthz, port: metrics }
            periodSeconds: 20
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: {{ .values.readinessPath | quote }}, port: metrics }
            periodSeconds: 15
            timeoutSeconds: 7
          {{- if gt (int .values.preStopSeconds) 0 }}
          lifecycle:
            preStop:
              sleep: { seconds: {{ .values.preStopSeconds }} }
          {{- end }}
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            - { name: data, mountPath: /data }
            - { name: tmp, mountPath: /tmp }
            {{- if $root.Values.caCertificates.configMap }}
            - { name: ca, mountPath: /etc/asset-mirror/ca, readOnly: true }
            {{- end }}
            {{- with $root.Values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
        {{- with $root.Values.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        - { name: data, emptyDir: { sizeLimit: 1Gi } }
        - { name: tmp, emptyDir: { sizeLimit: 1Gi } }
        {{- with $root.Values.caCertificates.configMap }}
        - { name: ca, configMap: { name: {{ . }} } }
        {{- end }}
        {{- with $root.Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- if .values.topologySpreadConstraints }}
        {{- toYaml .values.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "asset-mirror.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $.role }}
        {{- end }}
        {{- end }}
{{- end -}}

{{/* The PodDisruptionBudget and the autoscaler of a role. Takes the same dict. */}}
{{- define "asset-mirror.scaling" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "asset-mirror.fullname" $root) .role -}}
{{- $least := ternary .values.autoscaling.minReplicas .values.replicas .values.autoscaling.enabled -}}
{{- $keda := and (eq .role "worker") .values.keda.enabled -}}
{{- if $keda }}{{- $least = .values.keda.minReplicas }}{{- end -}}
{{- if and .values.podDisruptionBudget.enabled (or $keda (gt (int $least) 1)) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "asset-mirror.labels" $root | nindent 4 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "asset-mirror.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ .role }}
{{- end }}
{{- if .values.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "asset-mirror.labels" $root | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ $name }} }
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: { type: Utilization, averageUtilization: {{ .values.autoscaling.targetCPU }} }
{{- end }}
{{- end -}}
