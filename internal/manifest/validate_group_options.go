// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Limits of AWS. A network interface allows 5 security groups, one of which is Slipway's. User data
// is limited to 16 KiB, of which Slipway's own part uses up to 4 KiB.
const (
	maxAdditionalSecurityGroups = 4
	maxAdditionalUserData       = 16384 - 4096
	mimePartOverhead            = 200 // bytes of the headers of a MIME part
	maxManagedPolicies          = 10  // managed policies of a role
	maxInlinePolicy             = 8192
)

// toVolume returns the fields that a root volume and an etcd volume have in common.
func toVolume(r v1alpha1.RootVolume) v1alpha1.Volume {
	return v1alpha1.Volume{
		Type:       r.Type,
		Size:       r.Size,
		IOPS:       r.IOPS,
		Throughput: r.Throughput,
	}
}

// checkGroupOptions checks the optional settings of a group: tags, security groups, permissions,
// kubelet settings, user data, autoscaling, mixed instances and the warm pool.
func (v validator) checkGroupOptions(spec v1alpha1.InstanceGroupSpec) {
	checkTags(v, "spec.cloudLabels", spec.CloudLabels)
	v.checkSecurityGroups(spec.AdditionalSecurityGroups)
	if key := spec.RootVolume.EncryptionKey; key != "" && !keyPattern().MatchString(key) {
		v.errorf(
			"spec.rootVolume.encryptionKey",
			key,
			"write it as arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
			"is not a valid KMS key ARN",
		)
	}

	v.checkGroupIAM(spec)
	v.checkKubelet(spec.Kubelet)
	v.checkSysctls(spec.Sysctls)
	v.checkUserDataFormat(spec)
	v.checkUserData(spec.AdditionalUserData, spec.UserDataFormat)
	checkManager(v, spec)
	v.checkAutoscale(spec)
	v.checkMixedInstances(spec)
	v.checkWarmPool(spec)
	v.checkRollingUpdate(spec.RollingUpdate, spec.Role)
	v.checkRepair(spec)
	if spec.Role == v1alpha1.RoleBastion {
		v.rejectKubernetesFields(spec)
	}
}

func (v validator) checkAutoscale(spec v1alpha1.InstanceGroupSpec) {
	if !spec.Autoscale {
		return
	}

	switch {
	case spec.Role == v1alpha1.RoleControlPlane:
		v.errorf(
			"spec.autoscale",
			"true",
			"leave it out",
			"is for workers: the size of a control plane is its number of etcd members",
		)

	case spec.Role == v1alpha1.RoleWorker && spec.MinMachines() == spec.MaxMachines():
		v.warnf("spec.autoscale", "true", "raise maxSize", "has no effect while minSize is maxSize")
	}
}

func (v validator) checkSecurityGroups(ids []string) {
	if len(ids) > maxAdditionalSecurityGroups {
		v.errorf(
			"spec.additionalSecurityGroups",
			strconv.Itoa(len(ids)),
			fmt.Sprintf("use at most %d", maxAdditionalSecurityGroups),
			"exceeds the number of security groups that a network interface allows",
		)
	}

	seen := map[string]int{}
	for i, id := range ids {
		at := fmt.Sprintf("spec.additionalSecurityGroups[%d]", i)
		v.checkUnique(at, id, seen, i, "duplicates additionalSecurityGroups[%d]")
		v.checkSecurityGroup(at, id)
	}
}

func (v validator) checkSecurityGroup(path, id string) {
	if !isResourceID(id, "sg") {
		v.errorf(path, id, "write it as sg-0123456789abcdef0", "is not a valid security group ID")
	}
}

func (v validator) checkGroupIAM(spec v1alpha1.InstanceGroupSpec) {
	iam := spec.IAM
	if spec.Role != v1alpha1.RoleWorker && (len(iam.Policies) > 0 || iam.InlinePolicy != "") {
		v.errorf(
			"spec.iam",
			"",
			"grant the permissions to a worker group, or better to the service account of a pod",
			"is for workers only",
		)
	}

	v.checkPermissions("spec.iam.policies", iam.Policies, "spec.iam.inlinePolicy", iam.InlinePolicy)
}

// checkPermissions checks the managed policies and the inline policy of a role, which are at these paths.
func (v validator) checkPermissions(managedPath string, managed []string, inlinePath, inline string) {
	if len(managed) > maxManagedPolicies {
		v.errorf(
			managedPath,
			strconv.Itoa(len(managed)),
			fmt.Sprintf("use at most %d", maxManagedPolicies),
			"exceeds the number of managed policies that a role allows",
		)
	}

	seen := map[string]int{}

	for i, arn := range managed {
		at := fmt.Sprintf("%s[%d]", managedPath, i)
		v.checkUnique(at, arn, seen, i, "duplicates "+managedPath[strings.LastIndex(managedPath, ".")+1:]+"[%d]")
		if !policyPattern().MatchString(arn) {
			v.errorf(
				at,
				arn,
				"write it as arn:aws:iam::123456789012:policy/NAME",
				"is not a valid managed policy ARN",
			)
		}
	}

	checkInlinePolicy(v, inlinePath, inline)
}

func checkInlinePolicy(v validator, path, policy string) {
	if policy == "" {
		return
	}

	var doc struct {
		Version   string
		Statement any
	}
	if err := json.Unmarshal([]byte(policy), &doc); err != nil || doc.Statement == nil || doc.Version == "" {
		v.errorf(
			path,
			"",
			`write it as {"Version":"2012-10-17","Statement":[…]}`,
			"is not a policy document in JSON",
		)
	}

	if len(policy) > maxInlinePolicy {
		v.errorf(
			path,
			strconv.Itoa(len(policy)),
			"create a managed policy from it",
			"exceeds the limit of %d bytes",
			maxInlinePolicy,
		)
	}
}

func (v validator) checkQuantities(path string, set map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		at := path + "[" + key + "]"
		v.checkChoice(at, key, "cpu", "memory", "ephemeral-storage", "pid")
		if q, err := resource.ParseQuantity(set[key]); err != nil || q.Sign() < 0 {
			v.errorf(at, set[key], "write it as 500Mi or 100m", "is not a valid quantity")
		}
	}
}

// checkEviction checks the kubelet's eviction thresholds. A threshold is a quantity or a
// percentage.
func (v validator) checkEviction(path string, set map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		at := path + "[" + key + "]"
		v.checkChoice(
			at,
			key,
			"memory.available",
			"nodefs.available",
			"nodefs.inodesFree",
			"imagefs.available",
			"imagefs.inodesFree",
			"pid.available",
		)
		if percent, ok := strings.CutSuffix(set[key], "%"); ok {
			if n, err := strconv.ParseFloat(percent, 64); err != nil || n <= 0 || n >= 100 {
				v.errorf(at, set[key], "write it as 10%", "is not a percentage between 0 and 100 %%")
			}

			continue
		}

		if q, err := resource.ParseQuantity(set[key]); err != nil || q.Sign() <= 0 {
			v.errorf(at, set[key], "write it as 200Mi or 10%", "is neither a quantity nor a percentage")
		}
	}
}

// UserDataTypes returns the MIME types of user data parts that cloud-init supports.
func UserDataTypes() []string {
	return []string{
		"text/x-shellscript", "text/x-shellscript-per-boot", "text/x-shellscript-per-instance", "text/x-shellscript-per-once",
		"text/cloud-config", "text/cloud-boothook", "text/jinja2", "text/x-include-url", "text/x-include-once-url",
	}
}

func (v validator) checkUserData(parts []v1alpha1.UserData, format string) {
	types := UserDataTypes()
	if format == FormatIgnition {
		types = []string{IgnitionType}
	}

	seen := map[string]int{}
	size := 0

	for i, p := range parts {
		at := fmt.Sprintf("spec.additionalUserData[%d]", i)
		v.checkUnique(at+".name", p.Name, seen, i, "is also the name of additionalUserData[%d]")
		if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(p.Name) ||
			p.Name == "00-slipway" {
			v.errorf(
				at+".name",
				p.Name,
				"use up to 64 letters, digits, dots, dashes and underscores",
				"is not a valid name for a part of user data",
			)
		}

		v.checkChoice(at+".type", p.Type, types...)
		if p.Type == IgnitionType && format == FormatIgnition {
			v.checkIgnition(at+".content", p.Content)
		}

		if strings.TrimSpace(p.Content) == "" {
			v.errorf(at+".content", "", "leave the part out", "must not be empty")
		}

		size += len(p.Content) + len(p.Name) + mimePartOverhead
	}

	if size > maxAdditionalUserData {
		v.errorf(
			"spec.additionalUserData",
			strconv.Itoa(size),
			"fetch the larger part from S3 instead",
			"exceeds the %d bytes that the limit of EC2 leaves",
			maxAdditionalUserData,
		)
	}
}

func policyPattern() *regexp.Regexp {
	return regexp.MustCompile(`^arn:aws(-[a-z-]+)?:iam::(aws|\d{12}):policy/[\w+=,.@/-]+$`)
}

func keyPattern() *regexp.Regexp {
	return regexp.MustCompile(`^arn:aws(-[a-z-]+)?:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+$`)
}
