// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Limits of component settings. The CIS benchmark (1.2.17 to 1.2.19) requires the least values of the audit log.
const (
	maxPodsOfNode      = 250 // a node has a /24 of the pod range
	minAuditAgeDays    = 30
	minAuditBackups    = 10
	minAuditSizeMiB    = 100
	maxAuditNumber     = 10000
	maxPodProcesses    = 4194304 // the kernel's limit of process ids
	maxTerminatedPods  = 12500   // Kubernetes' default
	leastContainerLogs = 2
	most               = 1 << 30
)

// optionalNumber is a number field that may be unset.
type optionalNumber struct {
	path      string
	value     int
	low, high int
}

// checkOptionalNumbers reports the numbers that are set and out of range.
func (v validator) checkOptionalNumbers(fields ...optionalNumber) {
	for _, f := range fields {
		if f.value != 0 {
			v.checkRange(f.path, f.value, f.low, f.high)
		}
	}
}

// optionalWait is a duration field that may be unset.
type optionalWait struct {
	path, text string
	low, high  time.Duration
}

// checkOptionalWaits reports the durations that are set and not valid.
func (v validator) checkOptionalWaits(fields ...optionalWait) {
	for _, f := range fields {
		if f.text == "" {
			continue
		}

		if d, err := time.ParseDuration(f.text); err != nil || d < f.low || d > f.high {
			v.errorf(
				f.path,
				f.text,
				fmt.Sprintf("write a duration from %s to %s, such as 90s", f.low, f.high),
				"is not a duration in this range",
			)
		}
	}
}

// checkComponents checks the settings of the control plane's components.
func (v validator) checkComponents(spec v1alpha1.ClusterSpec) {
	s := spec.KubeAPIServer
	const server = "spec.kubeAPIServer."
	v.checkOptionalNumbers(
		optionalNumber{server + "maxRequestsInflight", s.MaxRequestsInflight, 100, 10000},
		optionalNumber{server + "maxMutatingRequestsInflight", s.MaxMutatingRequestsInflight, 50, 10000},
		optionalNumber{server + "defaultNotReadyTolerationSeconds", s.DefaultNotReadyTolerationSeconds, 1, 3600},
		optionalNumber{server + "defaultUnreachableTolerationSeconds", s.DefaultUnreachableTolerationSeconds, 1, 3600},
		optionalNumber{server + "auditLogMaxAge", s.AuditLogMaxAge, minAuditAgeDays, maxAuditNumber},
		optionalNumber{server + "auditLogMaxBackup", s.AuditLogMaxBackup, minAuditBackups, maxAuditNumber},
		optionalNumber{server + "auditLogMaxSize", s.AuditLogMaxSize, minAuditSizeMiB, maxAuditNumber},
	)
	v.checkOptionalWaits(optionalWait{server + "eventTTL", s.EventTTL, 5 * time.Minute, 7 * 24 * time.Hour})
	checkIssuers(v, s)

	m := spec.KubeControllerManager
	const manager = "spec.kubeControllerManager."
	if m.ServiceAccountTokenSecrets != "" {
		v.checkChoice(
			manager+"serviceAccountTokenSecrets",
			m.ServiceAccountTokenSecrets,
			v1alpha1.TokenSecretsEnabled,
			v1alpha1.TokenSecretsDisabled,
		)
	}

	v.checkOptionalNumbers(
		optionalNumber{manager + "terminatedPodGCThreshold", m.TerminatedPodGCThreshold, 1, maxTerminatedPods},
	)
	v.checkOptionalWaits(
		// Four heartbeats of the kubelet, which sends one every 10 s.
		optionalWait{manager + "nodeMonitorGracePeriod", m.NodeMonitorGracePeriod, 40 * time.Second, 10 * time.Minute},
		optionalWait{
			manager + "horizontalPodAutoscalerSyncPeriod",
			m.HorizontalPodAutoscalerSyncPeriod,
			5 * time.Second,
			5 * time.Minute,
		},
	)
}

// checkIssuers checks the issuers of the tokens of service accounts. The API server serves the documents of OpenID
// Connect discovery for https URLs without a query and a fragment only.
func checkIssuers(v validator, s v1alpha1.KubeAPIServer) {
	const path = "spec.kubeAPIServer."
	seen := map[string]int{}
	if s.ServiceAccountIssuer != "" {
		checkIssuer(v, path+"serviceAccountIssuer", s.ServiceAccountIssuer)
	}

	for i, issuer := range s.AcceptedServiceAccountIssuers {
		at := fmt.Sprintf("%sacceptedServiceAccountIssuers[%d]", path, i)
		checkIssuer(v, at, issuer)
		v.checkUnique(at, issuer, seen, i, "duplicates acceptedServiceAccountIssuers[%d]")
		if issuer == cmp.Or(s.ServiceAccountIssuer, defaultIssuer) {
			v.errorf(at, issuer, "leave it out", "is the issuer of the cluster itself, which is always accepted")
		}
	}
}

// defaultIssuer is the issuer of clusters whose manifest names none.
const defaultIssuer = "https://kubernetes.default.svc"

// checkIssuer checks one issuer.
func checkIssuer(v validator, path, issuer string) {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(issuer, "?#, \n\"") {
		v.errorf(path, issuer, "write it as https://oidc.example.com/demo", "is not an https URL without a query")
	}
}

// checkKubelet checks the kubelet settings of a group.
func (v validator) checkKubelet(k v1alpha1.Kubelet) {
	const path = "spec.kubelet."
	v.checkQuantities(path+"kubeReserved", k.KubeReserved)
	v.checkQuantities(path+"systemReserved", k.SystemReserved)
	v.checkEviction(path+"evictionHard", k.EvictionHard)
	v.checkSoftEviction(k)
	v.checkOptionalNumbers(
		optionalNumber{path + "maxPods", k.MaxPods, 10, maxPodsOfNode},
		optionalNumber{path + "podPidsLimit", k.PodPidsLimit, 64, maxPodProcesses},
		optionalNumber{path + "imageGCHighThresholdPercent", k.ImageGCHighThresholdPercent, 1, 100},
		optionalNumber{path + "imageGCLowThresholdPercent", k.ImageGCLowThresholdPercent, 1, 100},
		optionalNumber{path + "containerLogMaxFiles", k.ContainerLogMaxFiles, leastContainerLogs, most},
		optionalNumber{path + "maxParallelImagePulls", k.MaxParallelImagePulls, 1, 64},
	)

	if low, high := defaultedImageGC(k); low >= high {
		v.errorf(
			path+"imageGCLowThresholdPercent",
			strconv.Itoa(low),
			fmt.Sprintf("use less than imageGCHighThresholdPercent, which is %d", high),
			"is not below imageGCHighThresholdPercent",
		)
	}

	if text := k.ContainerLogMaxSize; text != "" {
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() <= 0 {
			v.errorf(path+"containerLogMaxSize", text, "write it as 50Mi", "is not a valid quantity")
		}
	}

	seen := map[string]int{}
	for i, name := range k.AllowedUnsafeSysctls {
		at := fmt.Sprintf("%sallowedUnsafeSysctls[%d]", path, i)
		v.checkUnique(at, name, seen, i, "duplicates allowedUnsafeSysctls[%d]")
		if !podSysctlPattern().MatchString(name) {
			v.errorf(
				at,
				name,
				"use a namespaced setting such as net.core.somaxconn, net.ipv4.* or kernel.msg*",
				"is not a kernel setting that a pod can have for itself",
			)
		}
	}
}

// defaultedImageGC returns the thresholds of the image garbage collection with Kubernetes' defaults.
func defaultedImageGC(k v1alpha1.Kubelet) (low, high int) {
	low = k.ImageGCLowThresholdPercent
	if low == 0 {
		low = 80
	}

	high = k.ImageGCHighThresholdPercent
	if high == 0 {
		high = 85
	}

	return low, high
}

// checkSoftEviction checks that each soft threshold has a grace period: the kubelet does not start otherwise.
func (v validator) checkSoftEviction(k v1alpha1.Kubelet) {
	v.checkEviction("spec.kubelet.evictionSoft", k.EvictionSoft)
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		if k.EvictionSoftGracePeriod[signal] == "" {
			v.errorf(
				"spec.kubelet.evictionSoftGracePeriod["+signal+"]",
				"",
				"set how long the signal must be below its threshold, such as 2m",
				"is not set, and evictionSoft has a threshold for it",
			)
		}
	}

	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoftGracePeriod)) {
		at := "spec.kubelet.evictionSoftGracePeriod[" + signal + "]"
		v.checkOptionalWaits(optionalWait{at, k.EvictionSoftGracePeriod[signal], time.Second, time.Hour})
		if k.EvictionSoft[signal] == "" {
			v.errorf(at, k.EvictionSoftGracePeriod[signal], "set the threshold in evictionSoft, or leave it out",
				"has no threshold in evictionSoft")
		}
	}
}

// podSysctlPattern matches what the kubelet accepts: kernel settings of the IPC and network namespaces.
func podSysctlPattern() *regexp.Regexp {
	return regexp.MustCompile(`^(kernel\.shm[a-z_]*\*?|kernel\.msg[a-z_]*\*?|kernel\.sem|fs\.mqueue\.[a-z_]*\*?|` +
		`net\.[a-z0-9_.-]*\*?)$`)
}

// sysctlPattern matches the name of a kernel setting. Between dots there is always a name, so that none leads out of
// /proc/sys.
func sysctlPattern() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)
}

// ReservedSysctls returns the kernel settings that Slipway sets itself, sorted. Kubernetes needs them.
func ReservedSysctls() []string {
	return []string{
		"fs.inotify.max_user_instances",
		"fs.inotify.max_user_watches",
		"kernel.keys.root_maxbytes",
		"kernel.keys.root_maxkeys",
		"kernel.panic",
		"kernel.panic_on_oops",
		"net.bridge.bridge-nf-call-ip6tables",
		"net.bridge.bridge-nf-call-iptables",
		"net.ipv4.ip_forward",
		"vm.overcommit_memory",
		"vm.panic_on_oom",
	}
}

// maxSysctls limits the kernel settings of a group.
const maxSysctls = 100

// checkSysctls checks the kernel settings of a group's machines.
func (v validator) checkSysctls(set map[string]string) {
	if len(set) > maxSysctls {
		v.errorf("spec.sysctls", strconv.Itoa(len(set)), fmt.Sprintf("use at most %d", maxSysctls), "are too many")
	}

	for _, key := range slices.Sorted(maps.Keys(set)) {
		at := "spec.sysctls[" + key + "]"
		value := set[key]
		switch {
		case !sysctlPattern().MatchString(key):
			v.errorf(at, "", "write it as net.core.somaxconn", "is not the name of a kernel setting")
		case slices.Contains(ReservedSysctls(), key):
			v.errorf(at, value, "leave it out", "is a setting that Kubernetes needs and Slipway sets")
		case strings.TrimSpace(value) != value || value == "" || strings.ContainsAny(value, "\n\r"):
			v.errorf(at, value, "write one value, such as 4096", "is not a value of a kernel setting")
		}
	}
}
