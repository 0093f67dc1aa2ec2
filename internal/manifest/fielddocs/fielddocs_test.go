// SPDX-License-Identifier: Apache-2.0

package fielddocs_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest/fielddocs"
)

func TestFind(t *testing.T) {
	for what, want := range map[string]string{
		"cluster":                                "Cluster  9",
		"group.spec.kubelet.maxPods":             "InstanceGroup spec.kubelet.maxPods",
		"ig.kubelet.maxpods":                     "InstanceGroup spec.kubelet.maxPods",
		"InstanceGroup.spec.rootVolume":          "InstanceGroup spec.rootVolume",
		"cluster.spec.networking.subnets.cidr":   "Cluster spec.networking.subnets[].cidr",
		"cluster.spec.networking.subnets[].cidr": "Cluster spec.networking.subnets[].cidr",
		"cluster.metadata.name":                  "Cluster metadata.name",
	} {
		f, err := fielddocs.Find(what)
		if err != nil || !strings.HasPrefix(want, f.Kind+" "+f.Path) {
			t.Errorf("%s: got %s %s, %v, want %s", what, f.Kind, f.Path, err, want)
		}
	}
}

func TestFindTellsWhere(t *testing.T) {
	for what, want := range map[string]string{
		"cluster.spec.kubelet":     "it is a field of the InstanceGroup: slipway explain instancegroup.spec.kubelet",
		"group.spec.etcd.volume":   "it is a field of the Cluster: slipway explain cluster.spec.etcd.volume",
		"group.spec.kublet":        "did you mean kubelet?",
		"cluster.spec.podCIDR":     "did you mean spec.networking.podCIDR?",
		"node.spec":                "begin with cluster or group",
		"group.spec.machineType.x": "spec.machineType is string and has no fields",
		"cluster.spec.xyzzy":       "known here: kubernetesVersion, ",
	} {
		_, err := fielddocs.Find(what)
		if hints := strings.Join(diag.Hints(err), "\n"); !strings.Contains(hints, want) {
			t.Errorf("%s: got %v with the hints %q, want %q", what, err, hints, want)
		}
	}
}

// TestEveryFieldIsDescribed: each field has a type, and each one without fields of its own a description.
func TestEveryFieldIsDescribed(t *testing.T) {
	kinds, err := fielddocs.Kinds()
	if err != nil || len(kinds) != 2 {
		t.Fatalf("%d kinds, %v", len(kinds), err)
	}
	var check func(f fielddocs.Field)
	check = func(f fielddocs.Field) {
		if f.Path != "" && f.Type == "" || f.Path != "" && len(f.Fields) == 0 && f.Description == "" {
			t.Errorf("%s %s: %+v", f.Kind, f.Path, f)
		}
		for _, c := range f.Fields {
			check(c)
		}
	}
	for _, k := range kinds {
		check(k)
	}
}
