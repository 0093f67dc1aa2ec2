// SPDX-License-Identifier: Apache-2.0

package v1alpha1

const (
	// MaxEtcdQuota is the largest quota of etcd's database in bytes: what etcd's documentation recommends at most
	// (https://etcd.io/docs/v3.6/dev-guide/limit/).
	MaxEtcdQuota = 8 << 30

	// MinFullQuotaVolume is the size in GiB of the smallest volume with a quota of MaxEtcdQuota.
	MinFullQuotaVolume = 18

	// EtcdDefragmentReserve is how many bytes stay free on the volume of a member besides the copy that its defragmentation writes.
	EtcdDefragmentReserve = 256 << 20
)

const (
	// etcdLogBytes is the space of etcd's log: five files of 64 MiB (--max-wals) and the one that is written next.
	etcdLogBytes = 6 * 64 << 20

	// fileSystemPart is the part of a volume that its file system keeps for itself.
	fileSystemPart = 16

	// etcdCopies of the database have room on a volume: the database, and the copy that a defragmentation writes or the data that was set
	// aside.
	etcdCopies = 2
)

// EtcdQuota returns the quota of etcd's database in bytes, a multiple of 1 MiB, on a volume of so many GiB; 0 means 20, the default. A
// volume that fills up before its quota is reached ends the member, and those of the other members are as full.
func EtcdQuota(volumeGiB int) int64 {
	if volumeGiB == 0 || volumeGiB >= MinFullQuotaVolume {
		return MaxEtcdQuota
	}

	size := int64(volumeGiB) << 30
	quota := (size - size/fileSystemPart - etcdLogBytes - EtcdDefragmentReserve) / etcdCopies

	return quota >> 20 << 20
}
