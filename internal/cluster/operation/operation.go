// SPDX-License-Identifier: Apache-2.0

// Package operation lets one writer at a time work on a cluster and keeps a record of what each did: a lock with a lease
// and a fencing token, and a journal. It knows nothing of what the operations do.
//
// Both lie in the state store below [KeyPrefix], outside the cluster's own objects, so that they outlive the cluster: the
// record of a deletion is there when the cluster is gone, and tokens never begin again. See docs/design/0008.
package operation

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// DefaultLeaseDuration is how long a lock is held by somebody who does not say any more that it still works.
const DefaultLeaseDuration = time.Minute

// KeyPrefix is where locks and journals lie. It is no valid name of a cluster.
const KeyPrefix = "_operations/"

// LockKey is where a cluster's lock lies.
func LockKey(cluster string) string { return KeyPrefix + cluster + "/lock.json" }

// JournalKey is where the record of the operation with token lies; zero gives the prefix of all. Keys sort by token.
func JournalKey(cluster string, token int64) string {
	prefix := KeyPrefix + cluster + "/journal/"
	if token == 0 {
		return prefix
	}

	return fmt.Sprintf("%s%012d.json", prefix, token)
}

// maxToken is the last token that keys sort by.
const maxToken = 999_999_999_999

// MaxClockSkew is by how much the clocks of two operators may differ, at most, for a lease of the given length: a taker waits
// that much longer than the lease says. Ten seconds for [DefaultLeaseDuration].
func MaxClockSkew(lease time.Duration) time.Duration { return lease / 6 }

// RenewInterval is how often a lease is renewed while its owner works. Fifteen seconds for [DefaultLeaseDuration].
func RenewInterval(lease time.Duration) time.Duration { return lease / 4 }

// expiryMargin is how long before its end a lease counts as over for its owner, so that what it has begun can end in time.
func expiryMargin(lease time.Duration) time.Duration { return lease / 12 }

// Coordinator is where operations on one cluster begin.
type Coordinator struct {
	Store   store.Store
	Cluster string
	// Now is the clock.
	Now func() time.Time
	// LeaseDuration is how long the lock is held after the last renewal. Zero: [DefaultLeaseDuration].
	LeaseDuration time.Duration
	// CheckReady is asked while the lock is looked at; its error, if any, keeps the lock from being taken. Nil agrees.
	CheckReady func(context.Context) error
	// RecordInBackground lets an operation begin while its record is written for the first time. The first [Op.SaveRecord], which comes
	// before anything is changed, waits for it and has its error.
	RecordInBackground bool
}

func (d Coordinator) leaseDuration() time.Duration {
	if d.LeaseDuration > 0 {
		return d.LeaseDuration
	}

	return DefaultLeaseDuration
}

// Initiator begins an operation, and why.
type Initiator struct {
	// Owner is the person and the machine, as in me@host.
	Owner string
	PID   int
	// Operation is its kind in one word, such as apply.
	Operation string
	// Command line that was given.
	Command string
	// Tool is the version of the program.
	Tool string
}

// maxTextBytes is how long a command line or an error may be in a record, in bytes.
const maxTextBytes = 4096

// redactSecrets takes out of a text what may be secret: passwords in URLs, signed queries, private keys.
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
