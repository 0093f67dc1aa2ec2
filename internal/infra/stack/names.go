// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// NameIndex translates CloudFormation's names to those of the graph.
type NameIndex struct {
	// AddrByLogicalID maps the logical ids of the present and the previous template to addresses.
	AddrByLogicalID map[string]graph.Addr
	// KindByType maps CloudFormation's types to names of kinds.
	KindByType map[string]string
	// OrderByAddr is the position of each address in the graph; other addresses are sorted last.
	OrderByAddr map[graph.Addr]int
}

// KindOf returns the name of the kind of a CloudFormation type; for a type without a kind its last part, such
// as wait-condition.
func (n NameIndex) KindOf(cfn string) string {
	if kind := n.KindByType[cfn]; kind != "" {
		return kind
	}

	return strings.ReplaceAll(graph.Snake(cfn[strings.LastIndex(cfn, ":")+1:]), "_", "-")
}

// AddrOf returns the address of a resource; for one that is not in the graph the kind and the logical id.
func (n NameIndex) AddrOf(cfn, logicalID string) graph.Addr {
	if addr := n.AddrByLogicalID[logicalID]; addr != "" {
		return addr
	}

	return graph.Addr(n.KindOf(cfn) + "/" + logicalID)
}
