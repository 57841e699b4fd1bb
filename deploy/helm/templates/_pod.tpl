{{/* The pod of the StatefulSet and of the Deployment. */}}
{{- define "channeld.pod" -}}
{{- $shared := include "channeld.shared" . -}}
metadata:
  labels:
    {{- include "channeld.selector" . | nindent 4 }}
  annotations:
    # A new configuration is rolled out like a new version.
    checksum/configuration: {{ sha256sum .Values.configuration }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $shared }}
  topologySpreadConstraints:
    - topologyKey: kubernetes.io/hostname
      maxSkew: 1
      whenUnsatisfiable: DoNotSchedule
      nodeTaintsPolicy: Honor
      labelSelector:
        matchLabels:
          {{- include "channeld.selector" . | nindent 10 }}
    - topologyKey: topology.kubernetes.io/zone
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "channeld.selector" . | nindent 10 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    {{- if not $shared }}
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: channeld
      image: {{ required "set image.repository to the name of the image" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
      {{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      args: [run, --config, /etc/channeld/channeld.toml]
      {{- with .Values.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: admin, containerPort: 9464}
        {{- if .Values.feed.enabled }}
        - {name: feed, containerPort: {{ .Values.feed.port }}}
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      startupProbe:
        httpGet: {path: /livez, port: admin}
        periodSeconds: 2
        failureThreshold: {{ if $shared }}30{{ else }}150{{ end }}
      livenessProbe:
        httpGet: {path: /livez, port: admin}
        periodSeconds: 15
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /readyz, port: admin}
        periodSeconds: 15
        timeoutSeconds: 12
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: {{ if $shared }}runtime{{ else }}state{{ end }}, mountPath: /var/lib/channeld}
        - {name: config, mountPath: /etc/channeld, readOnly: true}
        - {name: secrets, mountPath: /run/secrets/channeld, readOnly: true}
  volumes:
    {{- if $shared }}
    - name: runtime
      emptyDir: {sizeLimit: 16Mi}
    {{- end }}
    - name: config
      configMap: {name: {{ include "channeld.name" . }}}
    - name: secrets
      secret: {secretName: {{ include "channeld.secret" . }}, defaultMode: 0440}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
