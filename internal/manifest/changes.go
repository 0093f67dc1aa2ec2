// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// CheckChanges returns a finding for each difference between the applied manifests and the new ones that
// AWS, Kubernetes or etcd cannot make in place. Both sets have defaults. Documents that only one of the sets
// has are not compared: they are created or deleted as a whole. One cause gives one finding.
func CheckChanges(applied, now Set) diag.Findings {
	var fs diag.Findings
	rules := map[string]FieldRule{}
	for _, r := range FieldRules() {
		rules[r.Kind+" "+r.Path] = r
	}

	if applied.Cluster.Kind != "" && now.Cluster.Kind != "" {
		c := changeChecker{
			rules:  rules,
			kind:   v1alpha1.KindCluster,
			prefix: documentName(v1alpha1.KindCluster, applied.Cluster.Metadata) + ": ",
			fs:     &fs,
		}
		c.walk("", "", toJSONTree(applied.Cluster), toJSONTree(now.Cluster))
	}

	for _, old := range applied.Groups {
		g, kept := now.Group(old.Metadata.Name)
		if !kept {
			continue
		}

		c := changeChecker{
			rules:  rules,
			kind:   v1alpha1.KindInstanceGroup,
			prefix: documentName(v1alpha1.KindInstanceGroup, old.Metadata) + ": ",
			fs:     &fs,
		}
		c.walk("", "", toJSONTree(old), toJSONTree(g))
	}

	if fs.Err() == nil { // a changed zone of a subnet or role of a group is the cause of a changed slot
		checkSlotChanges(applied, now, &fs)
	}

	return fs
}

// changeChecker compares two versions of one document.
type changeChecker struct {
	rules  map[string]FieldRule // by kind and path
	kind   string
	prefix string // of findings, such as "cluster/demo: "
	fs     *diag.Findings
}

// walk compares the values at a path. at is the path as findings show it; path has [] for each item of a
// list, as in the rules.
func (c changeChecker) walk(at, path string, old, now any) {
	if rule, ok := c.rules[c.kind+" "+path]; ok {
		c.checkField(at, rule, old, now)
		return
	}

	a, aMap := old.(map[string]any)
	b, bMap := now.(map[string]any)
	if aMap || bMap {
		for _, key := range unionOfKeys(a, b) {
			c.walk(strings.TrimPrefix(at+"."+key, "."), strings.TrimPrefix(path+"."+key, "."), a[key], b[key])
		}

		return
	}

	x, _ := old.([]any) // nil: not set
	y, _ := now.([]any)
	c.walkItems(at, path, x, y)
}

// walkItems compares the items of two lists that have the same name.
func (c changeChecker) walkItems(at, path string, old, now []any) {
	for _, item := range old {
		i := slices.IndexFunc(now, func(other any) bool { return member(other, "name") == member(item, "name") })
		if i < 0 { // a renamed subnet has the same range
			i = slices.IndexFunc(now, func(other any) bool {
				return member(item, "cidr") != nil && member(other, "cidr") == member(item, "cidr") &&
					!hasItemNamed(old, member(other, "name"))
			})
		}

		if i >= 0 {
			c.walk(fmt.Sprintf("%s[%d]", at, i), path+"[]", item, now[i])
		}
	}
}

// member returns a member of a JSON object; nil if v is not an object or does not have it.
func member(v any, key string) any {
	fields, _ := v.(map[string]any)
	return fields[key]
}

func hasItemNamed(items []any, name any) bool {
	return slices.ContainsFunc(items, func(item any) bool { return member(item, "name") == name })
}

// checkField reports a change that the rule forbids.
func (c changeChecker) checkField(at string, rule FieldRule, old, now any) {
	if equalTrees(old, now) || rule.Rule.allows(old, now) {
		return
	}

	c.fs.Errorf(
		c.prefix+at,
		changedValue(now),
		rule.Instead,
		"%s %s",
		rule.Rule.refusal(),
		changedValue(old),
	)
	(*c.fs)[len(*c.fs)-1].Covers = c.prefix + at
}

// changedValue renders an old or new value for a finding.
func changedValue(v any) string {
	if isUnset(v) {
		return "(not set)"
	}

	if text, ok := v.(string); ok {
		return text
	}

	return formatValue(v)
}

func unionOfKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)

	return slices.Compact(keys)
}

// refusal begins the message of a change that r forbids. The former value follows it.
func (r ChangeRule) refusal() string {
	switch r {
	case OnlyGrows:
		return "cannot shrink from"
	case OneMinorAtATime:
		return "cannot follow"
	case ChangesFreely, StaysFixed, KeepsOrigin, KeepsElasticIP, KeepsZoneType, KeepsRole, KeepsManager:
	}

	return "cannot change once the cluster is applied; it is"
}

// allows reports whether a field with this rule may change from old to now, which differ.
func (r ChangeRule) allows(old, now any) bool {
	switch r {
	case ChangesFreely:
		return true
	case OnlyGrows:
		return isLarger(now, old)
	case KeepsOrigin:
		return isUnset(old) == isUnset(now)
	case KeepsElasticIP:
		return old != LoadBalancerElasticIP && now != LoadBalancerElasticIP
	case KeepsZoneType:
		zones := []any{DNSPrivate, DNSPublic}
		return !slices.Contains(zones, old) || !slices.Contains(zones, now)
	case OneMinorAtATime:
		return isUpgrade(old, now)
	case KeepsRole:
		return !isRole(now) // validation reports it
	case KeepsManager:
		return (old == v1alpha1.ManagerKarpenter) == (now == v1alpha1.ManagerKarpenter)
	case StaysFixed:
	}

	return false
}

func isLarger(now, old any) bool {
	was, wasNumber := old.(float64)
	is, isNumber := now.(float64)

	return wasNumber && isNumber && is > was
}

func isRole(v any) bool {
	roles := []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker, v1alpha1.RoleBastion}
	text, _ := v.(string)

	return slices.Contains(roles, v1alpha1.Role(text))
}

// isUpgrade reports whether the control plane can be upgraded from one version to the other in place. The
// version skew policy of Kubernetes does not allow to skip a minor version, and etcd's data cannot be read by
// an earlier one.
func isUpgrade(old, now any) bool {
	was, errWas := semver.NewVersion(fmt.Sprint(old))
	is, errIs := semver.NewVersion(fmt.Sprint(now))
	if errWas != nil || errIs != nil {
		return true // validation reports it
	}

	return is.Major() == was.Major() && (is.Minor() == was.Minor() || is.Minor() == was.Minor()+1)
}

func isUnset(v any) bool { return v == nil || v == "" }

func equalTrees(a, b any) bool {
	if isUnset(a) && isUnset(b) {
		return true
	}

	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)

	return errA == nil && errB == nil && string(x) == string(y)
}
