// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// The values of spec.networking.natGateways and of spec.api.loadBalancer.type.
const (
	NATPerZone            = "PerZone"
	NATSingle             = "Single"
	NATNone               = "None"
	LoadBalancerPublic    = "Public"
	LoadBalancerInternal  = "Internal"
	LoadBalancerElasticIP = "ElasticIP"
)

// maxNameLength is the longest name of a cluster or group, in characters. Both are parts of names
// that AWS limits; an IAM role name has at most 64 characters.
const maxNameLength = 40

// Limits of tags. AWS allows 50 tags on a resource, including Slipway's own.
const (
	maxTags     = 40
	maxTagKey   = 128
	maxTagValue = 256
)

// Limits that etcd sets for its timing (etcd documentation, Tuning).
const (
	electionPerHeartbeat = 5
	maxElectionMS        = 50000
)

// ValidName reports whether name is a valid name of a cluster or group: a DNS label of at most 40
// characters.
func ValidName(name string) bool {
	return len(name) <= maxNameLength && len(validation.IsDNS1123Label(name)) == 0
}

// Validate returns all findings about a defaulted set. It is a pure function: it calls no API.
func Validate(s Set) diag.Findings {
	var fs diag.Findings
	v := validator{fs: &fs, pathPrefix: "cluster/" + s.Cluster.Metadata.Name + ": "}
	if s.Cluster.Kind == "" {
		fs.Errorf("manifest", "", "add a document of kind Cluster", "contains no Cluster")
	} else {
		v.checkCluster(s.Cluster)
	}

	v.checkGroups(s)
	v.checkElasticIP(s)
	checkBalancerZones(v, s)
	checkSessionManager(v, s)

	return fs
}

// validator adds findings about one document.
type validator struct {
	fs         *diag.Findings
	pathPrefix string // such as "cluster/demo: "
	types      Set    // with the instance types that EC2 described; zero for none
}

func (v validator) errorf(path, value, hint, format string, args ...any) {
	v.fs.Errorf(v.pathPrefix+path, value, hint, format, args...)
}

func (v validator) warnf(path, value, hint, format string, args ...any) {
	v.fs.Warnf(v.pathPrefix+path, value, hint, format, args...)
}

// checkChoice reports a value that is not one of choices.
func (v validator) checkChoice(path, value string, choices ...string) {
	if slices.Contains(choices, value) {
		return
	}

	hint := "use " + strings.Join(choices, " or ")
	if near := diag.Nearest(value, choices); near != "" && len(choices) > 1 {
		hint = "did you mean " + near + "?"
	}

	v.errorf(path, value, hint, "is not one of %s", strings.Join(choices, ", "))
}

// checkRange reports a number that is less than low or greater than high.
func (v validator) checkRange(path string, n, low, high int) {
	if n < low || n > high {
		v.errorf(path, strconv.Itoa(n), fmt.Sprintf("use %d to %d", low, high), "is out of range")
	}
}

func (v validator) checkCluster(c v1alpha1.Cluster) {
	v.checkName(c.Metadata.Name)
	if version, err := semver.StrictNewVersion(c.Spec.KubernetesVersion); err != nil ||
		version.Prerelease()+version.Metadata() != "" {
		v.errorf(
			"spec.kubernetesVersion",
			c.Spec.KubernetesVersion,
			"write it as "+DefaultKubernetesVersion+`, without "v"; slipway get versions lists those of the asset catalogue`,
			"is not a valid Kubernetes version",
		)
	}

	// Without a region, none of the subnets has a valid zone, which has a finding of its own.
	region := c.Spec.CloudProvider.AWS.Region
	if !regionPattern().MatchString(region) && (region != "" || len(c.Spec.Networking.Subnets) == 0) {
		v.errorf(
			"spec.cloudProvider.aws.region",
			region,
			"write it as us-east-1",
			"is not an AWS region",
		)
	}

	v.checkProvidedResources(c.Spec)
	v.checkNetworking(c.Spec.Networking, region)
	v.checkAPI(c.Spec.API)
	v.checkAPISubnets(c.Spec)
	userValidator{v}.checkAPIUsers(c.Spec.API.Users)
	v.checkDNS(c.Spec)
	v.checkVolume("spec.etcd.volume", c.Spec.Etcd.Volume)
	checkEtcdQuota(v, c.Spec.Etcd.Volume)
	if id := c.Spec.MachineAccess.InstanceConnectSecurityGroup; id != "" {
		v.checkSecurityGroup("spec.machineAccess.instanceConnectSecurityGroup", id)
	}

	v.checkEtcdTiming(c.Spec.Etcd)
	v.checkComponents(c.Spec)
	podIdentityValidator{v}.checkPodIdentity(c)
	checkNodeController(v, c)
	checkVPCPods(v, c)
	v.checkEtcdBackup(c.Spec.Etcd.Backup)
	checkQuorumLoss(v, c.Spec.Etcd)
	checkNewVolumes(v, c.Spec)
	checkDiscovery(v, c)
	v.checkSSHKeys(c.Spec)
	v.checkDownloadSources(c.Spec)
	checkTags(v, "spec.tags", c.Spec.Tags)
	checkTagTexts(v, "spec.tags", c.Spec.Tags)
	v.checkRollingUpdate(c.Spec.RollingUpdate, v1alpha1.RoleWorker)
	v.checkUpgrade(c.Spec.Upgrade)
}

func (v validator) checkName(name string) {
	if !ValidName(name) {
		v.errorf(
			"metadata.name",
			name,
			"use at most 40 lower-case letters, digits and dashes, a letter or digit first and last",
			"is not a DNS label",
		)
	}
}

func (v validator) checkEtcdTiming(e v1alpha1.Etcd) {
	v.checkRange(
		"spec.etcd.heartbeatIntervalMS",
		e.HeartbeatIntervalMS,
		10,
		maxElectionMS/electionPerHeartbeat,
	)
	if least := electionPerHeartbeat * e.HeartbeatIntervalMS; e.ElectionTimeoutMS < least ||
		e.ElectionTimeoutMS > maxElectionMS {
		v.errorf(
			"spec.etcd.electionTimeoutMS",
			strconv.Itoa(e.ElectionTimeoutMS),
			fmt.Sprintf("use %d to %d", least, maxElectionMS),
			"must be at least five heartbeats, and at most %d",
			maxElectionMS,
		)
	}
}

func (v validator) checkAPI(api v1alpha1.APIAccess) {
	v.checkChoice(
		"spec.api.loadBalancer.type",
		api.LoadBalancer.Type,
		LoadBalancerPublic,
		LoadBalancerInternal,
		LoadBalancerElasticIP,
	)

	for i, cidr := range api.Access {
		v.parsePrefix(fmt.Sprintf("spec.api.access[%d]", i), cidr)
	}

	if len(api.Access) > 0 && api.LoadBalancer.Type == LoadBalancerInternal {
		v.errorf(
			"spec.api.access",
			strings.Join(api.Access, ", "),
			"leave it out, or use a Public load balancer",
			"has no effect with an Internal load balancer",
		)
	}

	for i, san := range api.AdditionalSANs {
		if _, err := netip.ParseAddr(san); err != nil &&
			len(validation.IsDNS1123Subdomain(strings.TrimPrefix(san, "*."))) > 0 {
			v.errorf(
				fmt.Sprintf("spec.api.additionalSANs[%d]", i),
				san,
				"write it as api.example.com or 192.0.2.1",
				"is neither a DNS name nor an address",
			)
		}
	}
}

// checkDownloadSources checks the locations that machines download from.
func (v validator) checkDownloadSources(spec v1alpha1.ClusterSpec) {
	if repo := spec.Assets.FileRepository; repo != "" {
		u, err := url.Parse(repo)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil {
			v.errorf(
				"spec.assets.fileRepository",
				hidePassword(repo),
				"write it as https://files.example.com/path",
				"must be an http or https URL without credentials",
			)
		}
	}

	checkContainerRegistry(v, spec)

	if base := spec.ConfigStore.Base; base != "" && !s3Pattern().MatchString(base) {
		v.errorf(
			"spec.configStore.base",
			hidePassword(base),
			"write it as s3://bucket/prefix",
			"is not a valid s3:// URL",
		)
	}
}

// hidePassword returns the URL for use in a finding, with its password replaced.
func hidePassword(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw
	}

	return u.Redacted()
}

func checkTags(v validator, path string, tags map[string]string) {
	if len(tags) > maxTags {
		v.errorf(
			path,
			strconv.Itoa(len(tags)),
			fmt.Sprintf("use at most %d", maxTags),
			"exceeds the number of tags that AWS allows",
		)
	}

	for _, key := range slices.Sorted(maps.Keys(tags)) {
		at := path + "[" + key + "]"
		if isReservedTag(key) {
			v.errorf(at, "", "use another key", "is reserved: Slipway, Kubernetes or AWS sets this key")
		}

		if key == "" || len(key) > maxTagKey || len(tags[key]) > maxTagValue {
			v.errorf(
				at,
				"",
				fmt.Sprintf("use at most %d and %d characters", maxTagKey, maxTagValue),
				"has a key or value that is empty or too long for AWS",
			)
		}
	}
}

// checkTagTexts checks what IAM and Elastic Load Balancing demand of tags, and EC2 does not:
// characters, and keys that differ in more than the case of their letters.
func checkTagTexts(v validator, path string, tags map[string]string) {
	allowed := regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	byLowerCase := map[string]string{"name": "Name"} // Slipway's own

	for _, key := range slices.Sorted(maps.Keys(tags)) {
		at := path + "[" + key + "]"
		if !allowed.MatchString(key) || !allowed.MatchString(tags[key]) {
			v.errorf(
				at,
				tags[key],
				"use letters, digits, spaces and _ . : / = + - @",
				"has a character that AWS does not allow in the tags of roles and load balancers",
			)
		}

		low := strings.ToLower(key)
		if other, twice := byLowerCase[low]; twice {
			v.errorf(
				at,
				"",
				"use one of them",
				"differs from %s only in the case of its letters, which IAM ignores",
				other,
			)
		}

		byLowerCase[low] = key
	}
}

func isReservedTag(key string) bool {
	low := strings.ToLower(key)
	return key == "Name" || strings.HasPrefix(low, "slipway.dev/") || strings.HasPrefix(low, "aws:") ||
		strings.HasPrefix(low, "kubernetes.io/") ||
		strings.HasPrefix(low, "k8s.io/cluster-autoscaler/")
}

// Patterns of names that AWS and registries define.
func zonePattern() *regexp.Regexp   { return regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d{1,2}[a-z]$`) }
func regionPattern() *regexp.Regexp { return regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d{1,2}$`) }
func s3Pattern() *regexp.Regexp {
	return regexp.MustCompile(`^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$`)
}

func registryPattern() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9.-]+(:\d{1,5})?(/[a-z0-9._-]+)*$`)
}
