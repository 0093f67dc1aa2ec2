// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// TagKeysTag is the tag that records which tag keys of a resource came from the manifest, so that a tag that
// was removed from the manifest can be distinguished from a tag that another program has added.
const TagKeysTag = "slipway.dev/tags"

// The tags with which a state store marks one resource of a cluster that it changes. They are no part of the
// desired state: no plan adds or removes them.
const (
	// StateStoreTag is where the state of the cluster is, such as s3://bucket/state.
	StateStoreTag = "slipway.dev/state"
	// OwnershipTokenTag is the random token of the copy of the state store that changed the cluster last.
	OwnershipTokenTag = "slipway.dev/token"
	// StateRevisionTag is the revision of the documents that were signed or applied last: older ones are refused.
	StateRevisionTag = "slipway.dev/revision"
)

// tagHashLength is the number of hex digits per key: forty keys fit into the 256 characters of a tag's value,
// and a foreign key is mistaken for one of them in at most one case of 26,000.
const tagHashLength = 5

// EncodeTagKeys returns the value of [TagKeysTag] for keys; empty for no keys.
func EncodeTagKeys(keys []string) string {
	var marks []string
	for _, k := range keys {
		marks = append(marks, hashTagKey(k))
	}

	slices.Sort(marks)

	return strings.Join(slices.Compact(marks), ".")
}

// HasTagKey reports whether value, that of a [TagKeysTag], contains key.
func HasTagKey(value, key string) bool {
	return value != "" && slices.Contains(strings.Split(value, "."), hashTagKey(key))
}

func hashTagKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])[:tagHashLength]
}

// IsOwnTag reports whether Slipway may remove a tag that the manifest does not have: one with the prefix
// slipway.dev/, or one that the manifest had before, by remembered, the value of [TagKeysTag]. Tags of others
// are left alone.
func IsOwnTag(key, remembered string) bool {
	if key == StateStoreTag || key == OwnershipTokenTag || key == StateRevisionTag {
		return false
	}

	return strings.HasPrefix(key, "slipway.dev/") || HasTagKey(remembered, key)
}
