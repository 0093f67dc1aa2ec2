// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// EncodeYAML renders the set as multi-document YAML: the cluster, then the groups sorted by name.
// The same set always gives the same bytes.
func EncodeYAML(s Set) []byte {
	s = s.sortedByName()
	var docs [][]byte
	if s.Cluster.Kind != "" {
		docs = append(docs, EncodeCluster(s.Cluster))
	}

	for _, g := range s.Groups {
		docs = append(docs, EncodeGroup(g))
	}

	return bytes.Join(docs, []byte("---\n"))
}

// EncodeCluster renders a Cluster document as YAML.
func EncodeCluster(c v1alpha1.Cluster) []byte { return mustYAML(c) }

// EncodeGroup renders an InstanceGroup document as YAML.
func EncodeGroup(g v1alpha1.InstanceGroup) []byte { return mustYAML(g) }

func mustYAML(doc any) []byte {
	out, err := yaml.Marshal(doc)
	if err != nil {
		panic("encode a document as YAML: " + err.Error())
	}

	return out
}
