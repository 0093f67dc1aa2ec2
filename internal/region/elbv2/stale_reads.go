// SPDX-License-Identifier: Apache-2.0

package elbv2

import (
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SetVisibility delays the visibility of new load balancers, target groups and listeners: calls that come too early do not
// see a new one that they name or would list. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// The prefixes of names in the ids of [Service.unseen].
const (
	balancerPrefix = "load-balancer "
	groupPrefix    = "target-group "
)

// unseenRules are how operations treat load balancers, target groups and listeners that are not visible yet.
func unseenRules() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			if operation == "DeleteLoadBalancer" { // AWS answers it in the same way if there is none
				return nil
			}

			ids := wire.Strings(in, "Name", "Names", "Tags")

			switch in := in.(type) {
			case *sdk.DescribeLoadBalancersInput:
				ids = append(ids, withPrefix(balancerPrefix, in.Names)...)
			case *sdk.DescribeTargetGroupsInput:
				ids = append(ids, withPrefix(groupPrefix, in.Names)...)
			}

			return ids
		},
		NotFound: func(_, id string) error {
			switch {
			case strings.HasPrefix(id, balancerPrefix), strings.Contains(id, ":loadbalancer/"):
				return newErrorf(codeLoadBalancerNotFound, "One or more load balancers not found")
			case strings.HasPrefix(id, groupPrefix), strings.Contains(id, ":targetgroup/"):
				return newErrorf(codeTargetGroupNotFound, "One or more target groups not found")
			default:
				return newErrorf(codeListenerNotFound, "One or more listeners not found")
			}
		},
		Listed: map[string]func(any) string{
			"LoadBalancers": visibility.IDsByMember("", "LoadBalancerArn"),
			"TargetGroups":  visibility.IDsByMember("", "TargetGroupArn"),
			"Listeners":     visibility.IDsByMember("", "ListenerArn"),
		},
	}
}

func withPrefix(prefix string, names []*string) []string {
	var out []string
	for _, name := range names {
		out = append(out, prefix+sdkshape.String(name))
	}

	return out
}
