// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// AddonImagePrefix is the value of a cluster that may be empty: a cluster without a mirror puts nothing before the
// references of images.
const AddonImagePrefix = "cluster.imagePrefix"

// AddonVPC is the value of a cluster that is read from AWS: the id of its VPC.
const AddonVPC = "cluster.vpcID"

// addonRolePrefix precedes the namespace and the name of a service account in a value that is the ARN of its IAM role.
const addonRolePrefix = "serviceAccountRole:"

// ParseAddonRole returns the namespace and the name of the service account that a value such as
// serviceAccountRole:kube-system/web names, the ARN of its IAM role; false for other values.
func ParseAddonRole(from string) (namespace, name string, ok bool) {
	account, ok := strings.CutPrefix(from, addonRolePrefix)
	if !ok {
		return "", "", false
	}

	namespace, name, ok = strings.Cut(account, "/")
	valid := len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0

	return namespace, name, ok && valid
}

// isAddonValue reports whether a parameter can be taken from a value: one of the manifest, or one that is read from AWS.
func isAddonValue(from string) bool {
	_, known := AddonClusterValues(v1alpha1.Cluster{}, "")[from]
	_, _, role := ParseAddonRole(from)

	return known || role || from == AddonVPC
}

// AddonClusterValues are the values of a manifest that a parameter of an add-on can be taken from. imagePrefix is what the
// cluster puts before the reference of every image: its container registry with a slash, or nothing.
func AddonClusterValues(c v1alpha1.Cluster, imagePrefix string) map[string]string {
	network := c.Spec.Networking

	return map[string]string{
		"cluster.name":                  c.Metadata.Name,
		"cluster.region":                c.Spec.CloudProvider.AWS.Region,
		"cluster.kubernetesVersion":     c.Spec.KubernetesVersion,
		"cluster.networkCIDR":           network.NetworkCIDR,
		"cluster.podCIDR":               network.PodCIDR,
		"cluster.serviceClusterIPRange": network.ServiceClusterIPRange,
		"cluster.dnsDomain":             network.DNSDomain,
		AddonImagePrefix:                imagePrefix,
	}
}

// addonPath returns the path of a field of an entry of a channel.
func addonPath(channel string, index int, field string) string {
	path := fmt.Sprintf("%s: spec.addons[%d]", channel, index)
	if field == "" {
		return path
	}

	return path + "." + field
}

// addonChecker reports values of a channel that are not valid.
type addonChecker struct {
	channel v1alpha1.AddonChannel
	kops    bool // it was converted from a kops channel
	fs      *diag.Findings
}

// errorf reports a field of an entry. what is the value and the fix.
func (c addonChecker) errorf(index int, field string, what [2]string, format string, args ...any) {
	if c.kops {
		names := strings.NewReplacer("source.manifest", "manifest", "source.sha256", "manifestHash", "prune[", "prune.kinds[")
		field = names.Replace(field)
	}

	c.fs.Errorf(addonPath(c.path(), index, field), what[0], what[1], format, args...)
}

// path returns how findings name the channel.
func (c addonChecker) path() string {
	kind := v1alpha1.KindAddonChannel
	if c.kops {
		kind = kindKopsAddons
	}

	return channelPath(kind, c.channel.Metadata.Name)
}

// check checks the channel.
func (c addonChecker) check() {
	name := c.channel.Metadata.Name
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		hint := "write a name of lower-case letters, digits, dashes and dots"
		c.fs.Errorf(c.path()+": metadata.name", name, hint, "is not a valid name")
	}

	if name == v1alpha1.SystemChannel {
		hint := "choose another name"
		c.fs.Errorf(c.path()+": metadata.name", name, hint, "is the channel of the add-ons that the control plane applies")
	}

	if c.channel.Spec.Source != nil {
		c.checkChannelSource(*c.channel.Spec.Source)
	} else if len(c.channel.Spec.Addons) == 0 {
		hint := "list at least one add-on; 'slipway addons delete' deletes add-ons"
		c.fs.Errorf(c.path()+": spec.addons", "", hint, "is empty")
	}

	for i, a := range c.channel.Spec.Addons {
		c.checkIdentity(i, a)
		c.checkMetadata(i, a)
		c.checkSource(i, a.Source)
		c.checkParameters(i, a.Parameters)
		c.checkBehaviour(i, a)
		c.checkPrune(i, a.Prune)
	}
}

// maxAddonName is the limit of the value of a label.
const maxAddonName = 63

// checkIdentity checks what an entry is chosen by.
func (c addonChecker) checkIdentity(i int, a v1alpha1.Addon) {
	if problems := validation.IsDNS1123Subdomain(a.Name); len(problems) > 0 || len(a.Name) > maxAddonName {
		fix := fmt.Sprintf("write lower-case letters, digits, dashes and dots, %d at most", maxAddonName)
		c.errorf(i, "name", [2]string{a.Name, fix}, "is not a valid name of an add-on")
	}

	if strings.HasPrefix(a.Name, v1alpha1.SystemAddonPrefix) {
		fix := "choose a name that does not begin with " + v1alpha1.SystemAddonPrefix
		c.errorf(i, "name", [2]string{a.Name, fix}, "is reserved for the add-ons that the control plane applies")
	}

	if _, err := semver.NewVersion(a.Version); err != nil && (!c.kops || a.Version != "") {
		c.errorf(i, "version", [2]string{a.Version, "write a version such as 1.2.3"}, "is not a semantic version")
	}

	if _, err := semver.NewConstraint(a.KubernetesVersion); err != nil && a.KubernetesVersion != "" {
		fix := `write a range such as ">=1.30.0 <1.38.0"`
		c.errorf(i, "kubernetesVersion", [2]string{a.KubernetesVersion, fix}, "is not a range of versions")
	}

	same := func(o v1alpha1.Addon) bool {
		return o.Name == a.Name && o.Version == a.Version && o.KubernetesVersion == a.KubernetesVersion
	}

	if first := slices.IndexFunc(c.channel.Spec.Addons, same); first < i {
		fix := "remove one of them, or give it another version or kubernetesVersion"
		c.errorf(i, "", [2]string{a.Name + " " + a.Version, fix}, "is the same version as spec.addons[%d]", first)
	}
}

// checkMetadata checks what an entry sets on its objects.
func (c addonChecker) checkMetadata(i int, a v1alpha1.Addon) {
	if problems := validation.IsDNS1123Label(a.Namespace); len(problems) > 0 && a.Namespace != "" {
		c.errorf(i, "namespace", [2]string{a.Namespace, "write the name of a namespace"}, "is not a valid name")
	}

	if _, err := labels.ValidatedSelectorFromSet(a.Selector); err != nil {
		c.errorf(i, "selector", [2]string{"", "write labels"}, "has labels that are not valid: %s", err)
	}
}

// checkParameters checks the parameters of an entry.
func (c addonChecker) checkParameters(i int, parameters []v1alpha1.AddonParameter) {
	seen := map[string]bool{}
	for n, p := range parameters {
		at := fmt.Sprintf("parameters[%d].", n)
		if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(p.Name) {
			c.errorf(i, at+"name", [2]string{p.Name, "write letters, digits and underscores"}, "is not a valid name")
		}

		if seen[p.Name] {
			c.errorf(i, at+"name", [2]string{p.Name, "remove one of them"}, "is given twice")
		}

		seen[p.Name] = true
		if p.Value != "" && p.From != "" {
			c.errorf(i, at+"from", [2]string{p.From, "remove one of them"}, "is given in addition to a value")
		}

		if p.From != "" && !isAddonValue(p.From) {
			known := append(sortedKeys(AddonClusterValues(v1alpha1.Cluster{}, "")), AddonVPC, addonRolePrefix+"NAMESPACE/NAME")
			fix := "write one of " + strings.Join(known, ", ")
			c.errorf(i, at+"from", [2]string{p.From, fix}, "is not a value of a cluster")
		}
	}
}

// checkBehaviour checks how an entry is applied.
func (c addonChecker) checkBehaviour(i int, a v1alpha1.Addon) {
	for n, name := range a.DependsOn {
		at := fmt.Sprintf("dependsOn[%d]", n)
		named := func(o v1alpha1.Addon) bool { return o.Name == name }
		if !slices.ContainsFunc(c.channel.Spec.Addons, named) {
			fix := "write the name of an add-on of this channel"
			c.errorf(i, at, [2]string{name, fix}, "is not an add-on of the channel")
		}
	}

	if d, err := time.ParseDuration(a.Timeout); a.Timeout != "" && (err != nil || d < time.Second || d > time.Hour) {
		c.errorf(i, "timeout", [2]string{a.Timeout, "write a time from 1s to 1h"}, "is not a valid timeout")
	}

	groups := []string{"", "control-plane", "workers", "all"}
	if !slices.Contains(groups, a.NeedsRollingUpdate) {
		fix := "write control-plane, workers or all"
		c.errorf(i, "needsRollingUpdate", [2]string{a.NeedsRollingUpdate, fix}, "is not known")
	}

	for n, h := range a.HealthChecks {
		at := fmt.Sprintf("healthChecks[%d].", n)
		needed := map[string]string{"apiVersion": h.APIVersion, "kind": h.Kind, "name": h.Name, "condition": h.Condition}
		for _, field := range sortedKeys(needed) {
			if needed[field] == "" {
				c.errorf(i, at+field, [2]string{"", "write the " + field + " of the object to check"}, "is missing")
			}
		}
	}
}

// checkPrune checks which objects are pruned by labels. Without labels all objects of a kind would be deleted.
func (c addonChecker) checkPrune(i int, kinds []v1alpha1.AddonPruneKind) {
	for n, k := range kinds {
		at := fmt.Sprintf("prune[%d].", n)
		if k.Kind == "" {
			c.errorf(i, at+"kind", [2]string{"", "write the kind of the objects"}, "is missing")
		}

		if k.Kind == "Namespace" || k.Kind == "CustomResourceDefinition" {
			fix := "remove the entry: delete such objects with kubectl"
			c.errorf(i, at+"kind", [2]string{k.Kind, fix}, "is never pruned by labels")
		}

		selector, err := labels.Parse(k.LabelSelector)
		if err != nil || selector.Empty() {
			fix := "write labels such as app=example"
			c.errorf(i, at+"labelSelector", [2]string{k.LabelSelector, fix}, "does not select objects by labels")
		}
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
