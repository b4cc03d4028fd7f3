{{/* diapause.image is the image of all pods. */}}
{{- define "diapause.image" -}}
{{ .Values.image.registry }}/{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/*
diapause.mutating is the API version of MutatingAdmissionPolicy that the cluster serves, or nothing. Without a cluster,
as for helm template, Helm knows no kinds: then the version of Kubernetes decides.
*/}}
{{- define "diapause.mutating" -}}
{{- $group := "admissionregistration.k8s.io" }}
{{- $apis := .Capabilities.APIVersions }}
{{- if not .Values.volumesPolicy }}
{{- else if $apis.Has (printf "%s/v1/MutatingAdmissionPolicy" $group) }}{{ $group }}/v1
{{- else if $apis.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) }}{{ $group }}/v1beta1
{{- else if $apis.Has "apps/v1/Deployment" }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}{{ $group }}/v1
{{- end }}
{{- end }}

{{/* diapause.number is a number without an exponent, or what else the value is. */}}
{{- define "diapause.number" -}}
{{ if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* diapause.labels are the labels of the objects of a program. */}}
{{- define "diapause.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: diapause
{{- end }}

{{/* diapause.storeArgs are arguments of both programs. */}}
{{- define "diapause.storeArgs" -}}
{{- with .Values.store }}
{{- with .url }}
- {{ printf "--store=%s" . | quote }}
{{- end }}
{{- with .id }}
- {{ printf "--store-id=%s" . | quote }}
{{- end }}
{{- if .acceptNetworkDirectory }}
- --accept-network-directory
{{- end }}
{{- with .orphanAge }}
- {{ printf "--orphan-age=%s" . | quote }}
{{- end }}
{{- if .encryptionKeysSecret }}
- --encryption-keys=/etc/diapause/keys
{{- end }}
{{- end }}
{{- end }}

{{/* diapause.proxyEnv are variables of both programs. */}}
{{- define "diapause.proxyEnv" -}}
{{- with .Values.proxy.https }}
- {name: HTTPS_PROXY, value: {{ quote . }}}
{{- end }}
{{- with .Values.proxy.exclude }}
- {name: NO_PROXY, value: {{ quote . }}}
{{- end }}
{{- end }}

{{/* diapause.pullSecrets are those of all pods. */}}
{{- define "diapause.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* diapause.hostPaths are the arguments of install and uninstall for paths of the host. */}}
{{- define "diapause.hostPaths" -}}
{{- with .Values.paths }}
{{- if ne .programs "/opt/diapause" }}
- {{ printf "--dir=%s" .programs | quote }}
{{- end }}
{{- if ne .containerdSocket "/run/containerd/containerd.sock" }}
- {{ printf "--containerd=%s" .containerdSocket | quote }}
{{- end }}
{{- if ne .containerdConfig "/etc/containerd/config.toml" }}
- {{ printf "--containerd-config=%s" .containerdConfig | quote }}
{{- end }}
{{- if ne .dropIn "/etc/containerd/conf.d/diapause.toml" }}
- {{ printf "--drop-in=%s" .dropIn | quote }}
{{- end }}
{{- end }}
{{- with .Values.install.restart }}
- {{ printf "--restart=%s" . | quote }}
{{- end }}
{{- end }}

{{/* diapause.metricsProxy is the container that asks who reads the metrics. */}}
{{- define "diapause.metricsProxy" -}}
{{- if .Values.monitoring.podMonitor }}
- name: metrics
  image: {{ required "monitoring.proxyImage: name the image of kube-rbac-proxy, which a PodMonitor needs" .Values.monitoring.proxyImage }}
  args: ["--secure-listen-address=:9465", "--upstream=http://127.0.0.1:9464/", "--allow-paths=/metrics"]
  ports:
  - {name: metrics, containerPort: 9465}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    runAsUser: 65532
    capabilities: {drop: [ALL]}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
{{- end }}
{{- end }}

{{/* diapause.hostSecurity is the security context of pods that work on their node. */}}
{{- define "diapause.hostSecurity" -}}
runAsUser: 0
runAsGroup: 0
seccompProfile: {type: RuntimeDefault}
# The usual profiles keep a container from looking into processes that are not its own, and the init container
# from restarting containerd. See docs/security/README.md.
appArmorProfile: {type: Unconfined}
seLinuxOptions: {type: spc_t}
{{- end }}

{{/* diapause.hook are annotations of an object that exists only for a hook: its events and its weight. */}}
{{- define "diapause.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{/* diapause.hookPod is of pods that speak to the API server alone. */}}
{{- define "diapause.hookPod" -}}
{{ include "diapause.pullSecrets" . | trim }}
restartPolicy: Never
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.controller.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.controller.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* diapause.hookContainer is that of such a pod, without its arguments. */}}
{{- define "diapause.hookContainer" -}}
image: {{ include "diapause.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
