// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// TestLostVolumes: only volumes that existed once count as lost, and what is left of the quorum is said.
func TestLostVolumes(t *testing.T) {
	g := &graph.Graph{}
	for _, slot := range []string{"a", "b", "c"} {
		graph.Add(g, "etcd-"+slot, awskind.Volume{Tags: awskind.Tags{awskind.TagSlot: slot}})
	}
	for _, tt := range []struct {
		gone, created string // slots
		want          string
		quorum        bool
	}{
		{"", "abc", "", true},
		{"abc", "", "", true}, // the first apply
		{"b", "abc", "1 of 3 etcd volumes is gone (volume/etcd-b): 2 members remain, quorum holds", true},
		{"bc", "abc", "2 of 3 etcd volumes are gone (volume/etcd-b, volume/etcd-c): 1 member remains, quorum is lost", false},
		{"abc", "abc", "3 of 3 etcd volumes are gone (volume/etcd-a, volume/etcd-b, volume/etcd-c): no member remains, quorum is lost", false},
		{"abc", "a", "1 of 3 etcd volumes is gone (volume/etcd-a): 2 members remain, quorum holds", true},
	} {
		lost := cluster.FindLostVolumes(
			g,
			func(a graph.Addr) bool { return !strings.Contains(tt.gone, string(a[len(a)-1:])) },
			func(_ graph.Addr, slot string) bool { return strings.Contains(tt.created, slot) },
		)
		demo := v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: "demo"}}
		refused, allowed := lost.Findings(demo, false), lost.Findings(demo, true)
		if tt.want == "" {
			if len(refused)+len(allowed) > 0 {
				t.Errorf("%+v: %v %v", tt, refused, allowed)
			}
			continue
		}
		if lost.String() != tt.want || lost.HasQuorum() != tt.quorum {
			t.Errorf("got %s, want %s", lost, tt.want)
		}
		if refused.Err() == nil || !strings.Contains(refused[0].Hint, cluster.RecreateLostVolumesFlag) {
			t.Errorf("%+v is not refused: %v", tt, refused)
		}
		if allowed.Err() != nil || len(allowed) != 1 || allowed[0].Severity != diag.Warning {
			t.Errorf("%+v is not allowed: %v", tt, allowed)
		}
	}
}

// TestLossIsRecovered: who does what depends on the manifest. Machines that recover etcd use the newest data that is left, which
// 'slipway etcd restore' would give up.
func TestLossIsRecovered(t *testing.T) {
	demo := v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: "demo"}}
	for _, test := range []struct {
		recovery       string
		lost           []graph.Addr
		refused, after string
	}{
		{v1alpha1.RecoveryAutomatic, []graph.Addr{"volume/etcd-a", "volume/etcd-b"}, "wait: the machines recover etcd from the newest data", "then wait: "},
		{v1alpha1.RecoveryAutomatic, []graph.Addr{"volume/etcd-a", "volume/etcd-b", "volume/etcd-c"}, "add --recreate-lost-volumes", "then wait: "},
		{v1alpha1.RecoveryManual, []graph.Addr{"volume/etcd-a", "volume/etcd-b"}, "then restore a backup", "then restore a backup"},
	} {
		demo.Spec.Etcd.QuorumLoss.Recovery = test.recovery
		lost := cluster.LostVolumes{Lost: test.lost, Members: 3}
		if hint := lost.Findings(demo, false)[0].Hint; !strings.Contains(hint, test.refused) {
			t.Errorf("%s, %d lost: %s", test.recovery, len(test.lost), hint)
		}
		if hint := lost.Findings(demo, true)[0].Hint; !strings.Contains(hint, test.after) {
			t.Errorf("%s, %d lost and created: %s", test.recovery, len(test.lost), hint)
		}
	}
}
