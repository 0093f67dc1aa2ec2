// SPDX-License-Identifier: Apache-2.0

// Package operation lets one writer at a time work on a cluster and keeps a record of what each did: a lock with a lease
// and a fencing token, and a journal. It knows nothing of what the operations do.
//
// Both lie in the state store below [Prefix], outside the cluster's own objects, so that they outlive the cluster: the
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

// DefaultLease is how long a lock is held by somebody who does not say any more that it still works.
const DefaultLease = time.Minute

// Prefix is where locks and journals lie. It is no valid name of a cluster.
const Prefix = "_operations/"

// LockKey is where a cluster's lock lies.
func LockKey(cluster string) string { return Prefix + cluster + "/lock.json" }

// JournalKey is where the record of the operation with token lies; zero gives the prefix of all. Keys sort by token.
func JournalKey(cluster string, token int64) string {
	prefix := Prefix + cluster + "/journal/"
	if token == 0 {
		return prefix
	}
	return fmt.Sprintf("%s%012d.json", prefix, token)
}

// maxToken is the last token that keys sort by.
const maxToken = 999_999_999_999

// Skew is by how much the clocks of two operators may differ, at most, for a lease of the given length: a taker waits
// that much longer than the lease says. Ten seconds for [DefaultLease].
func Skew(lease time.Duration) time.Duration { return lease / 6 }

// Heartbeat is how often a lease is renewed while its owner works. Fifteen seconds for [DefaultLease].
func Heartbeat(lease time.Duration) time.Duration { return lease / 4 }

// margin is how long before its end a lease counts as over for its owner, so that what it has begun can end in time.
func margin(lease time.Duration) time.Duration { return lease / 12 }

// Desk is where operations on one cluster begin.
type Desk struct {
	Store   store.Store
	Cluster string
	// Now is the clock.
	Now func() time.Time
	// Lease is how long the lock is held after the last renewal. Zero: [DefaultLease].
	Lease time.Duration
	// Ready is asked while the lock is looked at; its error, if any, keeps the lock from being taken. Nil agrees.
	Ready func(context.Context) error
	// Ahead lets an operation begin while its record is written for the first time. The first [Op.Save], which comes
	// before anything is changed, waits for it and has its error.
	Ahead bool
}

func (d Desk) lease() time.Duration {
	if d.Lease > 0 {
		return d.Lease
	}
	return DefaultLease
}

// Who begins an operation, and why.
type Who struct {
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

// maxText is how long a command line or an error may be in a record, in bytes.
const maxText = 4096

// redact takes out of a text what may be secret: passwords in URLs, signed queries, private keys.
func redact(text string) string {
	text = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`).ReplaceAllString(text, "[private key]")
	text = regexp.MustCompile(`AGE-SECRET-KEY-[0-9A-Z]+`).ReplaceAllString(text, "[age key]")
	text = regexp.MustCompile(`://[^/\s@?#]+@`).ReplaceAllString(text, "://[redacted]@")
	text = regexp.MustCompile(`(?i)\b(X-Amz-[A-Za-z-]+|token|password|secret|signature)=[^&\s"']+`).ReplaceAllString(text, "$1=[redacted]")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
