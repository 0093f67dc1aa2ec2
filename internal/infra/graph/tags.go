// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// TagKeys is the tag that remembers which of a resource's tags were asked for by name, so that one that is not asked for
// any more can be told from one that somebody else has put there.
const TagKeys = "slipway.dev/tags"

// tagHash is how many digits stand for a key: forty keys fit into the 256 characters of a tag's value, and somebody
// else's key is taken for one of them in one case of 26,000 at most.
const tagHash = 5

// MarkTags returns the value of [TagKeys] for keys; empty without any.
func MarkTags(keys []string) string {
	var marks []string
	for _, k := range keys {
		marks = append(marks, tagMark(k))
	}
	slices.Sort(marks)
	return strings.Join(slices.Compact(marks), ".")
}

// Marked says whether a value of [TagKeys] remembers key.
func Marked(value, key string) bool {
	return value != "" && slices.Contains(strings.Split(value, "."), tagMark(key))
}

func tagMark(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])[:tagHash]
}

// OwnTag says whether a tag of a resource that nobody asks for is ours to remove: one of Slipway's own, or one that was
// asked for before. Tags of others are left alone.
func OwnTag(key, remembered string) bool {
	return strings.HasPrefix(key, "slipway.dev/") || Marked(remembered, key)
}
