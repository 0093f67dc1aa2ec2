// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// serviceRulePrefix begins the descriptions of the rules that the cloud controller manager adds to the security groups of
// machines, for the network load balancers of Services.
const serviceRulePrefix = "kubernetes.io/rule/nlb/"

// The ports that these rules may open: those of Services, and the one where kube-proxy answers health checks.
const (
	firstServicePort    = 30000
	lastServicePort     = 32767
	portKubeProxyHealth = 10256
)

// isServiceRule reports whether the cloud controller manager has added a rule for a Service, and removes it with the
// Service. Then it is no drift. Whoever else writes such a description can open no other ports by it.
func isServiceRule(a plan.ActualResource) bool {
	r, isIngress := a.Resource.(awskind.SecurityGroupIngress)
	if !isIngress || r.CIDR == "" || !strings.HasPrefix(r.Description, serviceRulePrefix) {
		return false
	}

	switch r.Protocol {
	case "icmp": // to learn the MTU of a path; Slipway's own rule admits it from everywhere
		return r.FromPort == icmpUnreachable && r.ToPort == icmpFragmentationNeeded && r.CIDR != "0.0.0.0/0"
	case "tcp", "udp":
		return isServicePort(r.FromPort) && r.FromPort == r.ToPort
	}

	return false
}

// isServicePort reports whether a rule of the controller, which opens one port each, may open a port.
func isServicePort(port int) bool {
	return port == portKubeProxyHealth || port >= firstServicePort && port <= lastServicePort
}

// ICMP's type of messages about destinations that cannot be reached, and the code of packets that are too large.
const (
	icmpUnreachable         = 3
	icmpFragmentationNeeded = 4
)
