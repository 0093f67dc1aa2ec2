// SPDX-License-Identifier: Apache-2.0

package manifest

import (
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
