// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// MovePlan is how etcd of a cluster with one control-plane machine moves to the zone that the manifest names. The volume cannot
// follow: a backup is restored on a new one.
type MovePlan struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Slot is that of the machine.
	Slot string `json:"slot"`
	// Zone of the manifest.
	Zone string `json:"zone"`
	// Volume in another zone, which is set aside, and its zone; empty if there is none.
	Volume     string `json:"volume,omitempty"`
	VolumeZone string `json:"volumeZone,omitempty"`
	// Aside is set if the volume was set aside before, by a move that has not ended.
	Aside bool `json:"aside,omitempty"`
	// Returns is set if the volume that was set aside is in the zone of the manifest: it is used again, and nothing is restored.
	Returns bool `json:"returns,omitempty"`
	// Machines in other zones that have not ended.
	Machines []string `json:"machines,omitempty"`
	// Ending are those of Machines that EC2 is ending already. While their zone is down, they do not end.
	Ending []string `json:"ending,omitempty"`
	// Works is set if etcd answers.
	Works bool `json:"works"`
	// TakesBackup is set if a backup is taken before anything is changed: etcd works, and no backup was asked for.
	TakesBackup bool `json:"takesBackup,omitempty"`
	// Backup is the newest one that can be restored, or the one that was asked for; nil if there is none.
	Backup *backup.Backup `json:"backup,omitempty"`
	// Done is set if etcd has its data in the zone of the manifest.
	Done bool `json:"done"`
}

// PlanMove plans the move of etcd to the zone of the manifest. snapshot is the backup to restore; empty: the newest.
func (a *Admin) PlanMove(ctx context.Context, snapshot string) (MovePlan, error) {
	out := MovePlan{Cluster: a.name, Slot: node.PossibleSlots(a.name)[0].Name}
	zones := manifest.ControlPlaneZones(a.set)
	if len(zones) != 1 {
		return out, diag.WithHint(
			fmt.Errorf(
				"cluster %s has %d control-plane machines: only that of a single one moves",
				a.name,
				len(zones),
			),
			"members of several machines are replaced in their zones: slipway apply --recreate-lost-volumes",
		)
	}

	out.Zone = zones[0]
	if err := a.checkDirect(ctx); err != nil {
		return out, err
	}

	m, err := a.newMover(ctx, out)
	if err != nil {
		return out, err
	}

	if err := a.planVolume(ctx, m, &out); err != nil || out.Done || out.Returns {
		return out, err
	}

	return out, a.planMovedBackup(ctx, &out, snapshot)
}

// planVolume adds what exists of the slot in AWS, and whether anything is left to do.
func (a *Admin) planVolume(ctx context.Context, m mover, p *MovePlan) error {
	present, err := m.read(ctx, p)
	if err != nil {
		return err
	}

	joined, err := a.joinedVolume(ctx, p.Slot)
	if err != nil {
		return err
	}

	if p.Done = p.isDone(present, joined); p.Done || p.Volume != "" || joined == present {
		return nil
	}

	if err := m.readAside(ctx, joined, p); err != nil {
		return err
	}

	p.Returns = p.Aside && p.VolumeZone == p.Zone && present == ""

	return nil
}

// isDone reports whether the slot has nothing in other zones but machines that EC2 is ending, and its volume in the zone is the one that
// has had data last. A member that never had data has nothing to move.
func (p MovePlan) isDone(present, joined string) bool {
	return p.Volume == "" && len(p.Machines) == len(p.Ending) && present != "" && (joined == "" || joined == present)
}

// checkDirect returns an error unless Slipway itself has created the machine and its volume: a stack would replace the volume, and
// Terraform would create another one. Nothing records that Terraform did, but then nothing records that Slipway did either.
func (a *Admin) checkDirect(ctx context.Context) error {
	via, err := clusterstate.ReadProvisioner(ctx, a.state, a.name)
	if err != nil {
		return err
	}

	switch via {
	case clusterstate.Direct:
		return nil

	case clusterstate.CloudFormation:
		return diag.WithHint(
			fmt.Errorf(
				"cluster %s belongs to a CloudFormation stack, which would replace the volume",
				a.name,
			),
			"restore a backup into another cluster: slipway etcd restore --from "+a.name,
		)
	}

	return diag.WithHint(
		fmt.Errorf(
			"cluster %s was not created by slipway apply: there is nothing of it to move, or Terraform has created it",
			a.name,
		),
		"create it: slipway apply "+a.name+"; with Terraform, restore a backup into another cluster: slipway etcd restore --from "+a.name,
	)
}

// joinedVolume returns the volume on which the slot's member has had data last; empty if there is none.
func (a *Admin) joinedVolume(ctx context.Context, slot string) (string, error) {
	o, err := a.archive.Store.Get(ctx, node.EtcdJoinedKey(a.name, slot))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	var record struct {
		Volume string `json:"volume"`
	}
	if err := json.Unmarshal(o.Body, &record); err != nil {
		return "", fmt.Errorf("read %s: %w", o.Key, err)
	}

	return record.Volume, nil
}

// planMovedBackup adds whether etcd works, and the backup.
func (a *Admin) planMovedBackup(ctx context.Context, p *MovePlan, snapshot string) error {
	status, err := a.Status(ctx)
	if err != nil {
		return err
	}

	p.Works = status.Quorum
	p.TakesBackup = p.Works && snapshot == ""
	if snapshot != "" {
		listing, err := a.Backups(ctx)
		if err != nil {
			return err
		}

		found, err := chooseBackup(listing, snapshot)
		p.Backup = &found

		return err
	}

	newest, listed, err := a.newestBackup(ctx)
	p.Backup = newest
	if err == nil && newest == nil && !p.Works {
		return p.describeNoBackup(listed)
	}

	return err
}

// newestBackup returns the newest backup of the present data, without its sealed key, nil if there is none, and how many backups the
// cluster has. It is the one that machines would restore: see [backup.NewestOfGeneration].
func (a *Admin) newestBackup(ctx context.Context) (newest *backup.Backup, listed int, err error) {
	listing, err := a.trustedBackups(ctx)
	if err != nil {
		return nil, 0, err
	}

	last, _, err := a.lastGeneration(ctx)
	if err != nil {
		return nil, 0, err
	}

	return backup.NewestOfGeneration(listing.Backups, last), len(listing.Backups) + len(listing.Unreadable), nil
}

// describeNoBackup returns the error of a move without a backup. listed is how many backups the cluster has that are not used.
func (p MovePlan) describeNoBackup(listed int) error {
	if listed == 0 {
		return diag.WithHint(
			fmt.Errorf(
				"cluster %s has no backup of etcd that can be restored, and etcd does not work",
				p.Cluster,
			),
			p.describeData(),
		)
	}

	return diag.WithHint(
		fmt.Errorf("cluster %s has no backup of its present etcd data that can be restored, and etcd does not work: those that it has "+
			"were taken before the last restoration, copied from another cluster, failed their test, cannot be read or are not signed", p.Cluster),
		p.describeData()+"; or name one that 'slipway etcd snapshots' lists: --snapshot",
	)
}

// describeData says where the data is that no backup has.
func (p MovePlan) describeData() string {
	if p.Volume == "" {
		return "see what AWS has of it: slipway get machines " + p.Cluster
	}

	return "wait until zone " + p.VolumeZone + " is back: the data is on volume " + p.Volume
}
