// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// checkElasticIP checks that a cluster with an elastic IP address for the API has one control-plane
// machine, in a Public subnet.
func (v validator) checkElasticIP(s Set) {
	if s.Cluster.Spec.API.LoadBalancer.Type != LoadBalancerElasticIP {
		return
	}

	public := map[string]bool{}
	for _, n := range s.Cluster.Spec.Networking.Subnets {
		public[n.Name] = n.Type == v1alpha1.SubnetPublic
	}

	for _, g := range s.Groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}

		if g.Spec.MinMachines() != 1 {
			v.errorf(
				"spec.api.loadBalancer.type",
				LoadBalancerElasticIP,
				"use Public, or one control-plane machine",
				"requires exactly one control-plane machine, not %d",
				g.Spec.MinMachines(),
			)
		}

		for _, name := range g.Spec.Subnets {
			if !public[name] {
				v.errorf(
					"spec.api.loadBalancer.type",
					LoadBalancerElasticIP,
					"use a Public subnet for the control plane",
					"requires the control plane in Public subnets: %s is not Public",
					name,
				)
			}
		}
	}
}

// checkAPISubnets checks that a public load balancer has a Public or Utility subnet.
func (v validator) checkAPISubnets(spec v1alpha1.ClusterSpec) {
	hasEdge := slices.ContainsFunc(
		spec.Networking.Subnets,
		func(s v1alpha1.Subnet) bool { return s.Type != v1alpha1.SubnetPrivate },
	)
	if spec.API.LoadBalancer.Type == LoadBalancerPublic && len(spec.Networking.Subnets) > 0 && !hasEdge {
		v.errorf(
			"spec.api.loadBalancer.type",
			LoadBalancerPublic,
			"add a Utility or Public subnet in each zone, or set it to Internal",
			"needs a subnet with a route to the internet",
		)
	}
}

// maxAPIUsers keeps the node document small.
const maxAPIUsers = 200

// userValidator checks the users of the API.
type userValidator struct{ validator }

// checkAPIUsers checks who uses the API with an identity of AWS. A group that Slipway or Kubernetes gives a meaning, such
// as that of nodes, would let a user be what it is not.
func (v userValidator) checkAPIUsers(users []v1alpha1.APIUser) {
	const path = "spec.api.users"
	if len(users) > maxAPIUsers {
		v.errorf(path, strconv.Itoa(len(users)), "name roles that several people assume", "exceeds %d users", maxAPIUsers)
	}

	pattern := userARNPattern()
	first := map[string]int{}

	for i, u := range users {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !pattern.MatchString(u.ARN) {
			v.errorf(at+".arn", u.ARN, "write it as arn:aws:iam::123456789012:role/NAME or …:user/NAME",
				"is not the ARN of an IAM role or user")
		}

		name := withoutPath(u.ARN)
		if before, ok := first[name]; ok {
			v.errorf(at+".arn", u.ARN, "give the groups in one place", "is the same role or user as %s[%d]", path, before)
		} else {
			first[name] = i
		}

		v.checkUserGroups(at+".groups", u.Groups)
	}
}

// userARNPattern returns the pattern of the ARNs of IAM roles and users in all partitions.
func userARNPattern() *regexp.Regexp {
	var names []string
	for _, p := range partition.All() {
		names = append(names, regexp.QuoteMeta(p.Name))
	}

	partitions := strings.Join(names, "|")

	return regexp.MustCompile(`^arn:(` + partitions + `):iam::[0-9]{12}:(role|user)/([\w+=,.@/-]*/)?[\w+=,.@-]+$`)
}

// withoutPath returns an ARN without the path of the role or user: names are unique in an account.
func withoutPath(arn string) string {
	kind, rest, _ := strings.Cut(arn, "/")

	return kind + "/" + rest[strings.LastIndex(rest, "/")+1:]
}

func (v userValidator) checkUserGroups(path string, groups []string) {
	const fix = "use " + pki.AdminGroup + ", or a name of your own that RoleBindings refer to"
	if len(groups) == 0 {
		v.errorf(path, "", fix, "is required")
	}

	for i, g := range groups {
		reserved := strings.HasPrefix(g, "system:") || strings.HasPrefix(g, "slipway:") && g != pki.AdminGroup
		if reserved || !regexp.MustCompile(`^[\w:./@-]{1,100}$`).MatchString(g) {
			v.errorf(fmt.Sprintf("%s[%d]", path, i), g, fix, "is not a group for users of the API")
		}
	}
}
