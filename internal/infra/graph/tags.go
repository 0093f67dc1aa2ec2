// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// TagKeysTag is the tag that remembers which of a resource's tags were asked for by name, so that one that is not asked for
// any more can be told from one that somebody else has put there.
const TagKeysTag = "slipway.dev/tags"

// tagHashLength is how many digits stand for a key: forty keys fit into the 256 characters of a tag's value, and somebody
// else's key is taken for one of them in one case of 26,000 at most.
const tagHashLength = 5

// EncodeTagKeys returns the value of [TagKeysTag] for keys; empty without any.
func EncodeTagKeys(keys []string) string {
	var marks []string
	for _, k := range keys {
		marks = append(marks, hashTagKey(k))
	}

	slices.Sort(marks)

	return strings.Join(slices.Compact(marks), ".")
}

// HasTagKey says whether a value of [TagKeysTag] remembers key.
func HasTagKey(value, key string) bool {
	return value != "" && slices.Contains(strings.Split(value, "."), hashTagKey(key))
}

func hashTagKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])[:tagHashLength]
}

// IsOwnTag says whether a tag of a resource that nobody asks for is ours to remove: one of Slipway's own, or one that was
// asked for before. Tags of others are left alone.
func IsOwnTag(key, remembered string) bool {
	return strings.HasPrefix(key, "slipway.dev/") || HasTagKey(remembered, key)
}
