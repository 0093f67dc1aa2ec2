// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// NameIndex translates what CloudFormation calls things.
type NameIndex struct {
	// AddrByLogicalID by logical id, of the resources that the template has now, and before.
	AddrByLogicalID map[string]graph.Addr
	// KindByType by CloudFormation's type.
	KindByType map[string]string
	// OrderByAddr is the place of an address in the graph; what is not in it comes last.
	OrderByAddr map[graph.Addr]int
}

// KindOf is the name of the kind of a CloudFormation type; of one that we do not have, its last part in our spelling.
func (n NameIndex) KindOf(cfn string) string {
	if kind := n.KindByType[cfn]; kind != "" {
		return kind
	}

	return strings.ReplaceAll(graph.Snake(cfn[strings.LastIndex(cfn, ":")+1:]), "_", "-")
}

// AddrOf is the address of a resource; what the graph does not have goes by its logical id.
func (n NameIndex) AddrOf(cfn, logicalID string) graph.Addr {
	if addr := n.AddrByLogicalID[logicalID]; addr != "" {
		return addr
	}

	return graph.Addr(n.KindOf(cfn) + "/" + logicalID)
}
