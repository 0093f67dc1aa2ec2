// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"strings"

	"github.com/aws/aws-sdk-go/service/kms"
)

// KMS's limits of tags, the lengths in characters (KMS API reference, Tag; KMS developer guide, Tagging keys).
const (
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// checkTags refuses tags that KMS refuses, and more tags of one key than it allows. have are the tags of the key.
func checkTags(have map[string]string, tags []*kms.Tag) error {
	count := len(have)

	for _, t := range tags {
		name := stringValue(t.TagKey)
		if err := checkLength("tagKey", name, maxTagKeyLength); err != nil {
			return err
		}

		if err := checkLength("tagValue", stringValue(t.TagValue), maxTagValueLength); err != nil {
			return err
		}

		if name == "" || strings.HasPrefix(strings.ToLower(name), "aws:") {
			return newErrorf(invalidTag, "The tag key %q is empty or begins with aws:", name)
		}

		if _, replaced := have[name]; !replaced {
			count++
		}
	}

	if count > maxTags {
		return newErrorf(limitExceeded, "a key can have at most %d tags", maxTags)
	}

	return nil
}

func checkLength(member, text string, limit int) error {
	if len([]rune(text)) <= limit {
		return nil
	}

	return newErrorf(
		validationFailed,
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: "+
			"Member must have length less than or equal to %d",
		text,
		member,
		limit,
	)
}
