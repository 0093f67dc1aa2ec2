// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Print renders the set as multi-document YAML: the cluster, then the groups by name. The same set gives the same bytes.
func Print(s Set) []byte {
	s = s.sorted()
	var docs [][]byte
	if s.Cluster.Kind != "" {
		docs = append(docs, PrintCluster(s.Cluster))
	}
	for _, g := range s.Groups {
		docs = append(docs, PrintGroup(g))
	}
	return bytes.Join(docs, []byte("---\n"))
}

// PrintCluster renders one Cluster document.
func PrintCluster(c v1alpha1.Cluster) []byte { return mustYAML(c) }

// PrintGroup renders one InstanceGroup document.
func PrintGroup(g v1alpha1.InstanceGroup) []byte { return mustYAML(g) }

func mustYAML(doc any) []byte {
	out, err := yaml.Marshal(doc)
	if err != nil {
		panic("a document of plain fields is always YAML: " + err.Error())
	}
	return out
}
