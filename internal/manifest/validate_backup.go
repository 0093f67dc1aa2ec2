// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Limits of the backups of etcd.
const (
	minBackupInterval = 5 * time.Minute
	maxBackupInterval = 24 * time.Hour
	maxBackupKeepAll  = 90 * 24 * time.Hour
	maxBackupDays     = 3650
	maxVerifyEvery    = 1000
)

// checkEtcdBackup checks the settings of the backups of etcd.
func (v validator) checkEtcdBackup(b v1alpha1.EtcdBackup) {
	interval, err := time.ParseDuration(b.Interval)
	if err != nil || interval < minBackupInterval || interval > maxBackupInterval {
		v.errorf("spec.etcd.backup.interval", b.Interval, "use 5m to 24h, such as 1h", "is not valid")
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
