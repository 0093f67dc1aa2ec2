// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// TestServiceRules: the rules that the cloud controller manager adds for a Service are no drift. A rule with its description
// that opens anything else is.
func TestServiceRules(t *testing.T) {
	t.Parallel()

	const client, mtu = "kubernetes.io/rule/nlb/client=a0123", "kubernetes.io/rule/nlb/mtu"

	rule := func(protocol string, from, to int, cidr, description string) awskind.SecurityGroupIngress {
		return awskind.SecurityGroupIngress{Protocol: protocol, FromPort: from, ToPort: to, CIDR: cidr, Description: description}
	}
	peer := rule("tcp", 30080, 30080, "", client)
	peer.Source = graph.UnmanagedRef[awskind.SecurityGroup]("sg-1")

	for name, tc := range map[string]struct {
		rule graph.Resource
		want bool
	}{
		"clients of a Service":         {rule("tcp", 30080, 30080, "0.0.0.0/0", client), true},
		"clients over UDP":             {rule("udp", 32767, 32767, "192.0.2.0/24", client), true},
		"health checks of a Service":   {rule("tcp", 31000, 31000, "10.80.0.0/20", "kubernetes.io/rule/nlb/health=a0123"), true},
		"health checks of kube-proxy":  {rule("tcp", 10256, 10256, "10.80.0.0/20", "kubernetes.io/rule/nlb/health=a0123"), true},
		"the MTU of paths to clients":  {rule("icmp", 3, 4, "192.0.2.0/24", mtu), true},
		"the rule of Slipway, renamed": {rule("icmp", 3, 4, "0.0.0.0/0", mtu), false},
		"another message of ICMP":      {rule("icmp", 8, -1, "192.0.2.0/24", mtu), false},
		"SSH":                          {rule("tcp", 22, 22, "0.0.0.0/0", client), false},
		"a range that begins below":    {rule("tcp", 1, 32767, "0.0.0.0/0", client), false},
		"a range that ends above":      {rule("tcp", 30000, 65535, "0.0.0.0/0", client), false},
		"a range around kube-proxy's":  {rule("tcp", 10250, 10256, "0.0.0.0/0", client), false},
		"everything":                   {rule("-1", 0, 0, "0.0.0.0/0", client), false},
		"another description":          {rule("tcp", 30080, 30080, "0.0.0.0/0", "by hand"), false},
		"a rule that names a group":    {peer, false},
		"an egress rule":               {awskind.SecurityGroupEgress{Protocol: "tcp", FromPort: 30080, ToPort: 30080, CIDR: "0.0.0.0/0", Description: client}, false},
	} {
		if got := isServiceRule(plan.ActualResource{Resource: tc.rule}); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
