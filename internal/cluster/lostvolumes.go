// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// RecreateLostVolumesFlag is the flag that [PlanOptions.RecreateLostVolumes] is set by.
const RecreateLostVolumesFlag = "--recreate-lost-volumes"

// LostVolumes are the etcd volumes that were created once and no longer exist: the data on them is gone.
type LostVolumes struct {
	// Lost are the addresses of the lost volumes, in the order of their slots.
	Lost []graph.Addr
	// Members is the number of etcd members of the cluster.
	Members int
}

// EtcdVolumes returns the addresses of the etcd volumes in a graph, each with its slot.
func EtcdVolumes(g *graph.Graph) map[graph.Addr]string {
	out := map[graph.Addr]string{}
	for _, n := range g.Nodes() {
		if v, ok := n.Resource.(awskind.Volume); ok && v.Tags[awskind.TagSlot] != "" {
			out[n.Addr] = v.Tags[awskind.TagSlot]
		}
	}

	return out
}

// FindLostVolumes returns the etcd volumes of g that were created before and do not exist. wasCreated
// reports whether an earlier apply has created the volume at an address, or its slot has had data.
func FindLostVolumes(
	g *graph.Graph,
	exists func(graph.Addr) bool,
	wasCreated func(addr graph.Addr, slot string) bool,
) LostVolumes {
	volumes := EtcdVolumes(g)
	out := LostVolumes{Members: len(volumes)}

	for addr, slot := range volumes {
		if !exists(addr) && wasCreated(addr, slot) {
			out.Lost = append(out.Lost, addr)
		}
	}

	slices.Sort(out.Lost)

	return out
}

// Remaining returns the number of members that still have their volume.
func (l LostVolumes) Remaining() int { return l.Members - len(l.Lost) }

// HasQuorum reports whether the remaining members are a majority.
func (l LostVolumes) HasQuorum() bool { return l.Remaining() > l.Members/2 }

// String describes the loss. Example: "1 of 3 etcd volumes is gone (volume/etcd-b): 2 members remain, quorum
// holds".
func (l LostVolumes) String() string {
	names := make([]string, 0, len(l.Lost))
	for _, addr := range l.Lost {
		names = append(names, string(addr))
	}

	verb := "are"
	if len(l.Lost) == 1 {
		verb = "is"
	}

	remain := fmt.Sprintf("%d members remain", l.Remaining())
	switch l.Remaining() {
	case 0:
		remain = "no member remains"
	case 1:
		remain = "1 member remains"
	}

	quorum := "quorum holds"
	if !l.HasQuorum() {
		quorum = "quorum is lost"
	}

	return fmt.Sprintf(
		"%d of %d etcd volumes %s gone (%s): %s, %s",
		len(l.Lost),
		l.Members,
		verb,
		strings.Join(names, ", "),
		remain,
		quorum,
	)
}

// Findings reports the loss of c's volumes: as a warning if they may be recreated, else as an error.
func (l LostVolumes) Findings(c v1alpha1.Cluster, recreate bool) diag.Findings {
	if len(l.Lost) == 0 {
		return nil
	}

	var fs diag.Findings
	at := "cluster/" + c.Metadata.Name + ": etcd volumes"

	switch {
	case recreate && l.HasQuorum():
		fs.Warnf(at, "", "", "%s; empty volumes are created, and the other members fill them", l)
	case recreate:
		fs.Warnf(at, "", l.hintCreated(c),
			"%s; empty volumes are created, which do not bring its data back", l)

	case l.HasQuorum():
		fs.Errorf(at, "", "find out who deleted them; add "+RecreateLostVolumesFlag+
			" to create empty volumes, which the other members fill",
			"%s; their data is not recreated silently", l)

	default:
		fs.Errorf(at, "", l.hintLost(c),
			"%s: the Kubernetes API cannot work, and empty volumes do not bring its data back", l)
	}

	return fs
}

// recoversItself reports whether the machines of c recover etcd after the loss of its quorum.
func recoversItself(c v1alpha1.Cluster) bool {
	return c.Spec.Etcd.QuorumLoss.Recovery == v1alpha1.RecoveryAutomatic
}

// hintCreated returns what to do after empty volumes were created without a quorum.
func (l LostVolumes) hintCreated(c v1alpha1.Cluster) string {
	if recoversItself(c) {
		return "then wait: the machines recover etcd from the newest data that is left or a backup; " +
			"see: slipway etcd status " + c.Metadata.Name
	}

	return "then restore a backup: slipway etcd restore"
}

// hintLost returns what to do without a quorum.
func (l LostVolumes) hintLost(c v1alpha1.Cluster) string {
	switch {
	case !recoversItself(c):
		return "stop, and keep the machines running while their etcd still answers; " +
			"to go on, create empty volumes with " + RecreateLostVolumesFlag +
			", then restore a backup: slipway etcd restore"

	case l.Remaining() == 0:
		return "add " + RecreateLostVolumesFlag +
			" to create empty volumes, on which the machines restore the newest backup"
	}

	return "wait: the machines recover etcd from the newest data that is left; " +
		"see: slipway etcd status " + c.Metadata.Name + "; add " + RecreateLostVolumesFlag +
		" to create empty volumes for the members that are lost"
}
