// SPDX-License-Identifier: Apache-2.0

// Package operation ensures that only one operation at a time changes a cluster, and keeps a journal of the
// operations. It does not know what the operations do.
//
// A [Lock] is an object in the state store with a lease and a fencing token, which rises by one with each
// holder. A [Lease] is the lock as its holder sees it: it must be renewed, and guards writes against a later
// holder. A [Record] is the journal's entry for one operation, and an [Operation] is a running one: its lease
// and its record.
//
// Lock and journal are stored under [KeyPrefix], outside the cluster's own objects, so that they outlive the
// cluster: the record of a deletion stays readable, and tokens never restart. See docs/design/0008.
package operation

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// DefaultLeaseDuration is how long a lock stays held after its last renewal.
const DefaultLeaseDuration = time.Minute

// KeyPrefix is the prefix of the keys of locks and journals. It is not a valid name of a cluster.
const KeyPrefix = "_operations/"

// LockKey returns the key of a cluster's lock.
func LockKey(cluster string) string { return KeyPrefix + cluster + "/lock.json" }

// JournalKey returns the key of the record of the operation with token, or for token 0 the prefix of all
// records. Keys sort by token.
func JournalKey(cluster string, token int64) string {
	prefix := KeyPrefix + cluster + "/journal/"
	if token == 0 {
		return prefix
	}

	return fmt.Sprintf("%s%012d.json", prefix, token)
}

// maxToken is the largest token with which keys sort by token.
const maxToken = 999_999_999_999

// MaxClockSkew returns the largest allowed difference between the clocks of two operators: an expired lock
// can be taken only after this additional time. Ten seconds for [DefaultLeaseDuration].
func MaxClockSkew(lease time.Duration) time.Duration { return lease / 6 }

// RenewInterval returns the interval at which a holder renews its lease. Fifteen seconds for
// [DefaultLeaseDuration].
func RenewInterval(lease time.Duration) time.Duration { return lease / 4 }

// expiryMargin returns how long before its end the holder stops using a lease, so that running calls can
// finish in time.
func expiryMargin(lease time.Duration) time.Duration { return lease / 12 }

// Coordinator starts operations on one cluster. Store, Cluster and Now are required. It may be used
// concurrently.
type Coordinator struct {
	// Store is the state store.
	Store store.Store
	// Cluster is the cluster's name.
	Cluster string
	// Now is the clock.
	Now func() time.Time
	// LeaseDuration is how long the lock is held after the last renewal. Default: [DefaultLeaseDuration].
	LeaseDuration time.Duration
	// CheckReady is called while the lock is read; if it returns an error, the lock is not acquired. Nil: no
	// check.
	CheckReady func(context.Context) error
	// RecordInBackground lets an operation start while its record is being created. The first
	// [Operation.SaveRecord], which comes before any change, waits for that and returns its error.
	RecordInBackground bool
}

func (d Coordinator) leaseDuration() time.Duration {
	if d.LeaseDuration > 0 {
		return d.LeaseDuration
	}

	return DefaultLeaseDuration
}

// Initiator describes who starts an operation, and which one.
type Initiator struct {
	// Owner is the person and the machine, as in me@host.
	Owner string
	// PID is the process id on that machine.
	PID int
	// Operation is the name of the command, such as apply.
	Operation string
	// Command is the command line. Secrets in it are redacted before it is stored.
	Command string
	// Tool is the version of Slipway.
	Tool string
}

// maxTextBytes is the maximal length of a command line or an error in a record, in bytes.
const maxTextBytes = 4096

// redactSecrets replaces possible secrets in a text: passwords in URLs, signed queries, private keys.
func redactSecrets(text string) string {
	text = regexp.MustCompile(
		`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`,
	).ReplaceAllString(
		text,
		"[private key]",
	)

	text = regexp.MustCompile(`AGE-SECRET-KEY-[0-9A-Z]+`).ReplaceAllString(text, "[age key]")
	text = regexp.MustCompile(`://[^/\s@?#]+@`).ReplaceAllString(text, "://[redacted]@")
	text = regexp.MustCompile(
		`(?i)\b(X-Amz-[A-Za-z-]+|token|password|secret|signature)=[^&\s"']+`,
	).ReplaceAllString(
		text,
		"$1=[redacted]",
	)
	if len(text) > maxTextBytes {
		text = strings.ToValidUTF8(text[:maxTextBytes], "") + "…"
	}

	return text
}
