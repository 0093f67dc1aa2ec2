// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"strings"
	"time"
)

// FirstRestoration is the number of the generation of a cluster's first restoration.
const FirstRestoration = 2

// Generation is one restoration of a cluster's etcd. The first generation is the cluster as it was bootstrapped, and has
// a BootstrapMarker instead. A generation is written once and never changed. From then on data of earlier ones must not
// be used: their members would be a second cluster.
type Generation struct {
	// Number counts from FirstRestoration.
	Number int `json:"number"`
	// Token is the initial-cluster-token of the restored cluster, random.
	Token string `json:"token"`
	// Backup is the id of the backup.
	Backup string `json:"backup"`
	// Bytes is the size of the backup's database; 0 in generations of earlier versions.
	Bytes int64 `json:"bytes,omitempty"`
	// Slot restores the backup. The other members join it.
	Slot string `json:"slot"`
	// Volume on which the slot restores it; empty: the one that its machine has. After a move to another zone the former machine may work
	// still, if its zone was taken for lost.
	Volume string `json:"volume,omitempty"`
	// CreatedAt is when it was requested, and By by whom, for people.
	CreatedAt time.Time `json:"createdAt"`
	By        string    `json:"by"`
	// Recovery is set if the machines began the generation themselves.
	Recovery *Recovery `json:"recovery,omitempty"`
}

// Recovery says what was recovered after the loss of the quorum, and so what was lost.
type Recovery struct {
	// LostAt is since when there was no quorum, by the clock of the machine that began the generation.
	LostAt time.Time `json:"lostAt"`
	// Lost are the slots whose data was lost.
	Lost []string `json:"lost"`
	// Survivor is set if the backup was taken of the data of the slot that restores it, after the loss.
	Survivor bool `json:"survivor"`
	// Revision is the newest one that was recovered. Clients may have seen newer ones.
	Revision int64 `json:"revision"`
	// TakenAt is when the backup was taken: what was written after that is lost, unless it is a survivor's.
	TakenAt time.Time `json:"takenAt"`
}

// DescribeLoss says what a recovery lost, for people.
func (r Recovery) DescribeLoss() string {
	if r.Survivor {
		return fmt.Sprintf("writes after revision %d that only the lost members %s had", r.Revision, memberNames(r.Lost))
	}

	return fmt.Sprintf("writes after revision %d, from %s to %s", r.Revision,
		r.TakenAt.UTC().Format(time.RFC3339), r.LostAt.UTC().Format(time.RFC3339))
}

// memberNames returns the names of the members of slots.
func memberNames(slots []string) string {
	out := make([]string, 0, len(slots))
	for _, slot := range slots {
		out = append(out, "etcd-"+slot)
	}

	return strings.Join(out, ", ")
}

// BumpRevision is added to the revision of a backup when it is restored. It is more than the number of changes that a
// cluster can make between two backups, so that no client has seen a newer revision. etcd's documentation recommends
// this number.
const BumpRevision = 1_000_000_000

// decideRestored decides for a member without data of a cluster that was restored. Its slot restores the backup only if no member has
// had the data, and if no record says that its own has, also not one that nobody has signed: a second restoration would be a second
// cluster. Members join only one whose data is known to be that of the generation.
func decideRestored(f Facts) Action {
	isRestorer := f.Slot == f.Generation.Slot
	isRestored := len(f.Joined) > 0

	switch {
	case isRestorer && len(f.Former) > 0:
		return waitAction("%s", DescribeFormer(f.Former))

	case isRestorer && f.mayRestore():
		return f.Generation.restoreOn(f.Volume)
	case isRestorer && !isRestored:
		return waitAction("%s; begin the restoration again with: slipway etcd restore --again", DescribeUnsigned(f.Unsigned))
	case len(f.Slots) == 1 && len(f.Members) == 0:
		return waitAction("the only member's data is lost again: restore a backup with: slipway etcd restore")
	case !isRestored:
		return waitAction("slot %s is restoring backup %s%s", f.Generation.Slot, f.Generation.Backup, f.unsignedRemark())
	}

	return decideRejoin(f)
}

// mayRestore reports whether the generation's slot restores its backup: it was killed while it did, or nobody has had the data.
func (f Facts) mayRestore() bool {
	return f.Prepared || len(f.Joined) == 0 && f.Unsigned == ""
}

// unsignedRemark says that the record of the slot that restores does not count, if there is one.
func (f Facts) unsignedRemark() string {
	if f.Unsigned == "" {
		return ""
	}

	return "; " + DescribeUnsigned(f.Unsigned)
}

// DescribeUnsigned says why a record that a slot's member has had the data of a restoration does not count.
func DescribeUnsigned(key string) string {
	return key + " is not signed with the cluster's key: an agent of an earlier version has written it, or somebody without the key"
}

// restoreOn decides whether the machine of the slot that restores does so on its volume.
func (g Generation) restoreOn(volume string) Action {
	if g.Volume != "" && g.Volume != volume {
		return waitAction("backup %s is restored on volume %s, and this machine has %s: another machine is in its place", g.Backup, g.Volume, volume)
	}

	return Action{Type: ActionRestore, Reason: "restoring backup " + g.Backup}
}

// CheckVolume returns an error if the restored database of this generation must not be used on the volume own, because recorded, the volume
// by the slot's first record that it has the data, is another one. A machine that was taken for lost, and works, must not restore what its
// successor in the slot has restored: each would be a cluster by itself.
func (g Generation) CheckVolume(slot, recorded, own string) error {
	if recorded == own {
		return nil
	}

	return fmt.Errorf("generation %d of etcd was restored for slot %s on volume %s, and this machine has %s: another machine is in its place",
		g.Number, slot, recorded, own)
}

// DescribeFormer says why a restoration waits for members with older data, of whose cluster these are the members.
func DescribeFormer(members []Member) string {
	var names []string
	for _, m := range members {
		if m.Healthy {
			names = append(names, "etcd-"+m.Slot)
		}
	}

	who := "members"
	if len(names) > 0 {
		who = strings.Join(names, ", ")
	}

	return who + " still work with the data of before the restoration, and stop when they can read the machine store; " +
		"terminate one of their machines to restore without them"
}

// CheckRoom returns an error if a volume with so much free space has none for the data of the generation, which is restored or
// copied next to the data that is set aside.
func (g Generation) CheckRoom(free int64) error {
	if need := g.Bytes + DefragmentReserve; free < need {
		return fmt.Errorf(
			"etcd is to have the data of backup %s, and its volume has no space for it: %s",
			g.Backup,
			roomHint(need),
		)
	}

	return nil
}
