// SPDX-License-Identifier: Apache-2.0

// Package backup defines the backups of a cluster's etcd: where they are stored, how they are encrypted, when one is
// due, which one is tested next and which ones are deleted.
//
// A backup is a snapshot of etcd in encrypted parts, next to its [Metadata], which is written last: without it the
// backup does not exist. A [Verification] says whether the backup could be restored. [Decide] is a pure function from
// [Facts] to the next [Action]. The agent of the leader's machine carries actions out (package agent).
//
// The package runs no program and knows no machine. The rules and their reasons are in
// docs/design/0013-etcd-backups.md.
package backup

import (
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// FormatVersion is the version of the form of a backup.
const FormatVersion = 1

// Why a backup was taken.
const (
	// ReasonSchedule is a backup that was due.
	ReasonSchedule = "schedule"
	// ReasonRequest is a backup that an operator asked for.
	ReasonRequest = "request"
	// ReasonUpgrade is a backup before an upgrade.
	ReasonUpgrade = "upgrade"
	// ReasonMove is a backup before a member moves to another zone. It is always tested.
	ReasonMove = "move"
	// ReasonRecovery is a backup of the data of a member that survived the loss of the quorum.
	ReasonRecovery = "recovery"
	// ReasonCopy is a copy of a backup of another cluster, to be restored into this one.
	ReasonCopy = "copy"
)

// Contents is what an etcd database contains. Two databases with the same contents have the same keys and values at
// the same revisions.
type Contents struct {
	// Revision of the newest change.
	Revision int64 `json:"revision"`
	// HashKV is etcd's hash of all keys and values up to Revision; 0 if it is not known: etcdutl before 3.7 cannot compute it
	// of a database with leases.
	HashKV uint32 `json:"hashKV"`
	// Keys is the number of keys.
	Keys int `json:"keys"`
	// CompactRevision is the revision up to which HashKV, as an etcd that runs computes it, leaves out former values; 0 if HashKV is
	// that of the file.
	CompactRevision int64 `json:"compactRevision,omitempty"`
}

// Matches reports whether two databases have the same contents, as far as both are known: see ComparesHash.
func (c Contents) Matches(other Contents) bool {
	sameHash := c.HashKV == other.HashKV || !c.ComparesHash(other)

	return sameHash && c.Revision == other.Revision && c.Keys == other.Keys
}

// ComparesHash reports whether the hashes of two databases can be compared: both are known, and leave out the same former values. If
// they cannot, Matches compares the revision and the number of keys only.
func (c Contents) ComparesHash(other Contents) bool {
	return c.HashKV != 0 && other.HashKV != 0 && c.CompactRevision == other.CompactRevision
}

// Metadata describes a complete backup.
type Metadata struct {
	// FormatVersion is the constant FormatVersion.
	FormatVersion int `json:"formatVersion"`
	// ID of the backup; ids sort by time.
	ID string `json:"id"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// ClusterID is the random id of the cluster.
	ClusterID string `json:"clusterID,omitempty"`
	// EtcdClusterID and MemberID are etcd's, in hex.
	EtcdClusterID string `json:"etcdClusterID"`
	MemberID      string `json:"memberID"`
	// Member is the name of the member that took the snapshot, such as etcd-a.
	Member string `json:"member"`
	// Machine is the EC2 instance id of its machine.
	Machine string `json:"machine"`
	// TakenAt is when the snapshot was taken, by the machine's clock.
	TakenAt time.Time `json:"takenAt"`
	// Reason is schedule, request, upgrade, move, recovery or copy.
	Reason string `json:"reason"`
	// Origin is set for a copy.
	Origin *Origin `json:"origin,omitempty"`
	// Generation of etcd's data: 1 if it was never restored; 0 in backups of earlier versions.
	Generation int `json:"generation,omitempty"`
	// RaftTerm is the term of the leader whose data it is; 0 if it is not known.
	RaftTerm uint64 `json:"raftTerm,omitempty"`
	// RequestID is the id of the request; empty for a scheduled backup.
	RequestID string `json:"requestID,omitempty"`
	Contents
	// Said is what the member said of itself at Revision when the snapshot was taken, which a test compares with what an etcd says that
	// serves the restored data. It is zero in backups that are not tested, of earlier versions, of data without a member that runs, and if
	// Revision was compacted by then.
	Said Contents `json:"said,omitzero"`
	// DBSize is the size of the snapshot in bytes.
	DBSize int64 `json:"dbSize"`
	// SHA256 of the snapshot in lower-case hex.
	SHA256 string `json:"sha256"`
	// Parts is the number of encrypted parts.
	Parts int `json:"parts"`
	// SealedKey is the key of the parts, sealed for the cluster.
	SealedKey []byte `json:"sealedKey,omitempty"`
	// EtcdVersion is the version of the member, and KubernetesVersion that of its machine.
	EtcdVersion       string `json:"etcdVersion"`
	KubernetesVersion string `json:"kubernetesVersion"`
}

// Verification is the result of a test in which a backup was restored.
type Verification struct {
	// ID of the backup.
	ID string `json:"id"`
	// VerifiedAt is when the test ended.
	VerifiedAt time.Time `json:"verifiedAt"`
	// Machine is the EC2 instance id of the machine that tested it.
	Machine string `json:"machine"`
	// OK means that the backup was restored, and that its contents were those of the metadata.
	OK bool `json:"ok"`
	// HashCompared means that the hash of all keys and values was compared too. Otherwise only the revision and the number of keys were,
	// or an earlier version tested the backup.
	HashCompared bool `json:"hashCompared,omitempty"`
	// Error says why it is not OK.
	Error string `json:"error,omitempty"`
	// Inconclusive is set if several attempts to test the backup failed for a reason that says nothing of the backup, such as a
	// machine without memory. OK is not set, and the backup counts as one that was not tested.
	Inconclusive bool `json:"inconclusive,omitempty"`
	// Restored are the contents of the restored database.
	Restored Contents `json:"restored,omitzero"`
	// TookSeconds is how long the test took.
	TookSeconds int `json:"tookSeconds"`
}

// Backup is a complete backup in the machine store.
type Backup struct {
	Metadata
	// Verification is nil until the backup has been tested.
	Verification *Verification `json:"verification,omitempty"`
	// IsSigned is set if a machine of the cluster signed the metadata, and IsTestSigned if one signed the verification. Both are set by
	// archives with Records only. Earlier versions sign neither.
	IsSigned     bool `json:"-"`
	IsTestSigned bool `json:"-"`
}

// Verified reports whether the backup was restored successfully.
func (b Backup) Verified() bool { return b.Verification != nil && b.Verification.OK }

// Broken reports whether a test of the backup showed that it cannot be restored.
func (b Backup) Broken() bool {
	return b.Verification != nil && !b.Verification.OK && !b.Verification.Inconclusive
}

// Untestable reports whether the backup could not be tested, for a reason that says nothing of the backup.
func (b Backup) Untestable() bool { return b.Verification != nil && b.Verification.Inconclusive }

// FromFuture reports whether a backup was taken so far in the future that it does not count: the clock of its machine was wrong.
// Clocks that differ by less than the interval of the policy do no harm.
func (b Backup) FromFuture(now time.Time, p Policy) bool { return isFuture(b.TakenAt, now, p) }

// TestedAt returns when a backup was tested; the zero time if it was not. If the clock of the machine that tested it was ahead, it
// is when the backup was taken.
func (b Backup) TestedAt(now time.Time, p Policy) time.Time {
	switch {
	case b.Verification == nil:
		return time.Time{}
	case isFuture(b.Verification.VerifiedAt, now, p):
		return b.TakenAt
	default:
		return b.Verification.VerifiedAt
	}
}

func isFuture(at, now time.Time, p Policy) bool { return at.Sub(now) >= p.Interval }

// Prefix returns the prefix of the cluster's backups in the machine store. Control-plane machines may read, write
// and delete there.
func Prefix(cluster string) string { return node.EtcdPrefix(cluster) + "backups/" }

// Key returns the key of an object of a backup.
func Key(cluster, id, object string) string { return Prefix(cluster) + id + "/" + object }

// The names of the objects of a backup besides its parts.
const (
	metadataObject     = "backup.json"
	verificationObject = "verification.json"
)

// partObject returns the name of a part; parts are counted from 0.
func partObject(n int) string { return fmt.Sprintf("part-%05d", n) }

// Context returns the encryption context that binds the key of a backup to its cluster and its id.
func Context(cluster, id string) map[string]string {
	bound := node.SecretContext(cluster)
	bound["slipway.dev/backup"] = id

	return bound
}

// idTime is the form of the time in an id.
const idTime = "20060102t150405z"

// NewID returns the id of a backup that is taken now. suffix tells backups of the same second apart.
func NewID(now time.Time, suffix string) string {
	return now.UTC().Format(idTime) + "-" + strings.ToLower(suffix)
}

// timeOf returns the time in an id, and whether the id is valid.
func timeOf(id string) (time.Time, bool) {
	text, suffix, found := strings.Cut(id, "-")
	at, err := time.Parse(idTime, text)

	return at, found && err == nil && suffix != "" && !strings.Contains(suffix, "/")
}

// Policy says when backups are taken and tested, and how long they are kept.
type Policy struct {
	// Disabled turns scheduled backups off.
	Disabled bool
	// Interval between two backups.
	Interval time.Duration
	// KeepAll is how long every backup is kept.
	KeepAll time.Duration
	// KeepDaily is for how many days the last backup of each day is kept.
	KeepDaily int
	// VerifyEvery is the number of backups for each that is tested.
	VerifyEvery int
}

// The policy of clusters whose manifest sets none.
const (
	DefaultInterval    = "1h"
	DefaultKeepAll     = "24h"
	DefaultKeepDaily   = 14
	DefaultVerifyEvery = 6
)

// NewPolicy returns the policy of a manifest. Unset fields have their defaults.
func NewPolicy(e v1alpha1.EtcdBackup) (Policy, error) {
	p := Policy{Disabled: e.Disabled, KeepDaily: e.KeepDaily, VerifyEvery: e.VerifyEvery}
	if p.KeepDaily == 0 {
		p.KeepDaily = DefaultKeepDaily
	}

	if p.VerifyEvery == 0 {
		p.VerifyEvery = DefaultVerifyEvery
	}

	for _, field := range []struct {
		name, text, preset string
		into               *time.Duration
	}{
		{"interval", e.Interval, DefaultInterval, &p.Interval},
		{"keepAll", e.KeepAll, DefaultKeepAll, &p.KeepAll},
	} {
		text := field.text
		if text == "" {
			text = field.preset
		}

		var err error
		if *field.into, err = time.ParseDuration(text); err != nil || *field.into <= 0 {
			return p, fmt.Errorf("spec.etcd.backup.%s: %q is not a valid duration", field.name, text)
		}
	}

	return p, nil
}
