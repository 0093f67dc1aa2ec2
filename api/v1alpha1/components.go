// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KubeAPIServer configures kube-apiserver. The fields have the names of its flags. Zero values leave the default.
type KubeAPIServer struct {
	// MaxRequestsInflight is the most read requests that one API server serves at the same time, 100 to 10000. Unset
	// means Kubernetes' default, 400.
	MaxRequestsInflight int `json:"maxRequestsInflight,omitempty"`

	// MaxMutatingRequestsInflight is the most changing requests that one API server serves at the same time, 50 to
	// 10000. Unset means Kubernetes' default, 200.
	MaxMutatingRequestsInflight int `json:"maxMutatingRequestsInflight,omitempty"`

	// EventTTL is how long events are kept, such as 3h, 5m to 168h. Unset means Kubernetes' default, 1h.
	EventTTL string `json:"eventTTL,omitempty"`

	// DefaultNotReadyTolerationSeconds is how long pods stay bound to a node that is not ready, 1 to 3600. Unset means
	// Kubernetes' default, 300.
	DefaultNotReadyTolerationSeconds int `json:"defaultNotReadyTolerationSeconds,omitempty"`

	// DefaultUnreachableTolerationSeconds is how long pods stay bound to a node that is unreachable, 1 to 3600. Unset
	// means Kubernetes' default, 300.
	DefaultUnreachableTolerationSeconds int `json:"defaultUnreachableTolerationSeconds,omitempty"`

	// AuditLogMaxAge is how many days files of the audit log are kept, 30 or more. Unset means 30.
	AuditLogMaxAge int `json:"auditLogMaxAge,omitempty"`

	// AuditLogMaxBackup is how many former files of the audit log are kept, 10 or more. Unset means 10.
	AuditLogMaxBackup int `json:"auditLogMaxBackup,omitempty"`

	// AuditLogMaxSize is the size in MiB at which a new file of the audit log begins, 100 or more. Unset means 100.
	AuditLogMaxSize int `json:"auditLogMaxSize,omitempty"`

	// AuditLogUpload copies the audit log of each API server to the bucket of the state store within a minute. Machines can
	// add objects there, and neither change nor remove any. Unset means false: the log is on the machines only.
	AuditLogUpload bool `json:"auditLogUpload,omitempty"`

	// ServiceAccountIssuer is the issuer in the tokens of service accounts, an https URL. It is fixed when the cluster
	// is created. Unset means https://kubernetes.default.svc, or the public address of the discovery store.
	ServiceAccountIssuer string `json:"serviceAccountIssuer,omitempty"`

	// AcceptedServiceAccountIssuers are further issuers whose tokens the API server accepts if one of the cluster's keys
	// signed them, such as those of a cluster that was restored into this one. They are fixed when the cluster is
	// created.
	AcceptedServiceAccountIssuers []string `json:"acceptedServiceAccountIssuers,omitempty"`
}

// KubeControllerManager configures kube-controller-manager. The fields have the names of its flags. Zero values leave
// the default.
type KubeControllerManager struct {
	// TerminatedPodGCThreshold is how many terminated pods may exist before the oldest are deleted, 1 to 12500. Unset
	// means 100.
	TerminatedPodGCThreshold int `json:"terminatedPodGCThreshold,omitempty"`

	// NodeMonitorGracePeriod is how long a node may be silent before it counts as not ready, such as 90s, 40s to 10m.
	// Unset means Kubernetes' default, 50s.
	NodeMonitorGracePeriod string `json:"nodeMonitorGracePeriod,omitempty"`

	// HorizontalPodAutoscalerSyncPeriod is how often the number of pods is adapted, such as 30s, 5s to 5m. Unset means
	// Kubernetes' default, 15s.
	HorizontalPodAutoscalerSyncPeriod string `json:"horizontalPodAutoscalerSyncPeriod,omitempty"`

	// ServiceAccountTokenSecrets says whether kube-controller-manager puts tokens that never expire into Secrets of type
	// kubernetes.io/service-account-token: Enabled or Disabled. It needs the key that signs all tokens of service accounts
	// for that, and has no key if it is Disabled. Tokens in existing Secrets, and those of 'kubectl create token' and of
	// pods, are not affected. Unset means Enabled; new clusters get Disabled.
	ServiceAccountTokenSecrets string `json:"serviceAccountTokenSecrets,omitempty"`
}

// Whether tokens of service accounts are put into Secrets.
const (
	// TokenSecretsEnabled gives kube-controller-manager the key that signs tokens of service accounts.
	TokenSecretsEnabled = "Enabled"
	// TokenSecretsDisabled leaves that key to kube-apiserver alone.
	TokenSecretsDisabled = "Disabled"
)
