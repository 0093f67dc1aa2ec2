// SPDX-License-Identifier: Apache-2.0

package backup

import "fmt"

// WorkDir is where a machine has plain copies of etcd's database while it takes, tests or restores a backup. It is on the root disk.
const WorkDir = "/var/lib/slipway/backup"

// DiskReserve is how many bytes stay free on the disk of WorkDir besides the copies.
const DiskReserve = 1 << 30

// CheckDisk returns an error if the disk of WorkDir, which has so many free bytes, has no space for copies of so many bytes.
func CheckDisk(free, bytes int64) error {
	if need := bytes + DiskReserve; free < need {
		return fmt.Errorf("%s has %d MiB of free space and needs %d: set spec.rootVolume.size of the control-plane group to a larger size",
			WorkDir, free>>20, need>>20)
	}

	return nil
}
