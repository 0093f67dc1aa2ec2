// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Limits of the backups of etcd.
const (
	minBackupInterval = 30 * time.Second
	maxBackupInterval = 24 * time.Hour
	maxBackupKeepAll  = 90 * 24 * time.Hour
	maxBackupDays     = 3650
	maxVerifyEvery    = 1000
)

// Limits of spec.etcd.quorumLoss.after.
const (
	minRecoveryDelay = time.Minute
	maxRecoveryDelay = 24 * time.Hour
	// minVolumeDelay is the least of spec.etcd.recreateVolumesAfter: EC2 lists a volume some time after its creation.
	minVolumeDelay = 2 * time.Minute
)

// checkEtcdBackup checks the settings of the backups of etcd.
func (v validator) checkEtcdBackup(b v1alpha1.EtcdBackup) {
	interval, err := time.ParseDuration(b.Interval)
	if err != nil || interval < minBackupInterval || interval > maxBackupInterval {
		v.errorf("spec.etcd.backup.interval", b.Interval, "use 30s to 24h, such as 1h", "is not valid")
	}

	keep, err := time.ParseDuration(b.KeepAll)

	switch {
	case err != nil || keep <= 0 || keep > maxBackupKeepAll:
		v.errorf("spec.etcd.backup.keepAll", b.KeepAll, "use a duration such as 24h, at most 2160h", "is not valid")
	case keep < interval:
		v.errorf(
			"spec.etcd.backup.keepAll",
			b.KeepAll,
			"set it to spec.etcd.backup.interval ("+b.Interval+") or more",
			"is shorter than the time between two backups",
		)
	}

	v.checkRange("spec.etcd.backup.keepDaily", b.KeepDaily, 1, maxBackupDays)
	v.checkRange("spec.etcd.backup.verifyEvery", b.VerifyEvery, 1, maxVerifyEvery)
}

// checkQuorumLoss checks what happens after the loss of the quorum.
func checkQuorumLoss(v validator, e v1alpha1.Etcd) {
	at := "spec.etcd.quorumLoss."
	q := e.QuorumLoss
	if q.Recovery != v1alpha1.RecoveryManual && q.Recovery != v1alpha1.RecoveryAutomatic {
		v.errorf(at+"recovery", q.Recovery, "use Manual or Automatic", "is not valid")
	}

	after, err := time.ParseDuration(q.After)
	if err != nil || after < minRecoveryDelay || after > maxRecoveryDelay {
		v.errorf(at+"after", q.After, "use 1m to 24h, such as 10m", "is not valid")
	}

	if q.Recovery == v1alpha1.RecoveryAutomatic && e.Backup.Disabled {
		v.warnf(at+"recovery", q.Recovery, "leave spec.etcd.backup.disabled out, or take backups with: slipway etcd snapshot",
			"recovers only data that a member still has: scheduled backups are disabled")
	}
}

// maxConditionOfTags is how many characters the tags of the manifest may need in the condition of the policy by which machines
// create volumes: the inline policies of a role have 10,240 at most.
const maxConditionOfTags = 2500

// countConditionOfTags returns how many characters tags need in that condition: each one its key, its value and its key again.
func countConditionOfTags(tags map[string]string) int {
	total := 0
	for key, value := range tags {
		total += len(`"aws:RequestTag/":"","",`) + 2*len(key) + len(value)
	}

	return total
}

// defaultRecovery lets machines recover a lost quorum, if there are backups.
func defaultRecovery(s *Set) {
	e := &s.Cluster.Spec.Etcd
	recovery := v1alpha1.RecoveryAutomatic
	if e.Backup.Disabled {
		recovery = v1alpha1.RecoveryManual
	}

	setDefaultText(&e.QuorumLoss.Recovery, recovery)
}

// defaultNewVolumes lets machines create lost volumes, if each slot has a role of its own, whose policy can name all tags.
func defaultNewVolumes(s *Set) {
	c := &s.Cluster.Spec
	if c.CloudProvider.AWS.InstanceProfiles.ControlPlane == "" && countConditionOfTags(c.Tags) <= maxConditionOfTags {
		setDefaultText(&c.Etcd.RecreateVolumesAfter, "10m")
	}
}

// checkEtcdQuota warns of a volume that has no room for the largest database.
func checkEtcdQuota(v validator, volume v1alpha1.Volume) {
	quota := v1alpha1.EtcdQuota(volume.Size)
	if volume.Size <= 0 || quota == v1alpha1.MaxEtcdQuota {
		return
	}

	v.warnf("spec.etcd.volume.size", strconv.Itoa(volume.Size),
		fmt.Sprintf("set it to %d or more for the %d MiB that etcd recommends at most", v1alpha1.MinFullQuotaVolume, v1alpha1.MaxEtcdQuota>>20),
		"leaves room for a database of %d MiB, its log and a copy of it: etcd refuses all writes when the database is larger", quota>>20)
}

// checkNewVolumes checks when machines create new volumes.
func checkNewVolumes(v validator, c v1alpha1.ClusterSpec) {
	const at = "spec.etcd.recreateVolumesAfter"
	text := c.Etcd.RecreateVolumesAfter
	if text == "" || text == v1alpha1.RecreateVolumesNever {
		return
	}

	after, err := time.ParseDuration(text)
	if err != nil || after < minVolumeDelay || after > maxRecoveryDelay {
		v.errorf(at, text, "use 2m to 24h, such as 5m, or Never", "is not valid")
	}

	if c.CloudProvider.AWS.InstanceProfiles.ControlPlane != "" {
		v.errorf(at, text, "set it to Never, or leave spec.cloudProvider.aws.instanceProfiles.controlPlane out",
			"needs a role for each slot: machines that share one could create volumes of each other's slots")
	}

	if countConditionOfTags(c.Tags) > maxConditionOfTags {
		v.errorf(at, text, "set it to Never, or shorten spec.tags",
			"needs a policy that names all tags of spec.tags, which are too long for one")
	}
}
