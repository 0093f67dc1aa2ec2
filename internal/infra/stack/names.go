// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Names translates what CloudFormation calls things.
type Names struct {
	// Addrs by logical id, of the resources that the template has now, and before.
	Addrs map[string]graph.Addr
	// Kinds by CloudFormation's type.
	Kinds map[string]string
	// Order is the place of an address in the graph; what is not in it comes last.
	Order map[graph.Addr]int
}

// KindOf is the name of the kind of a CloudFormation type; of one that we do not have, its last part in our spelling.
func (n Names) KindOf(cfn string) string {
	if kind := n.Kinds[cfn]; kind != "" {
		return kind
	}
	return strings.ReplaceAll(graph.Snake(cfn[strings.LastIndex(cfn, ":")+1:]), "_", "-")
}

// Addr is the address of a resource; what the graph does not have goes by its logical id.
func (n Names) Addr(cfn, logicalID string) graph.Addr {
	if addr := n.Addrs[logicalID]; addr != "" {
		return addr
	}
	return graph.Addr(n.KindOf(cfn) + "/" + logicalID)
}
