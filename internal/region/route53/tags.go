// SPDX-License-Identifier: Apache-2.0

package route53

import (
	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Route 53's limits of tags (ChangeTagsForResource, Tag), the lengths in characters.
const (
	maxChangedTags    = 10 // in a request: added or changed, and removed
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// checkTagChange refuses a request that Route 53 refuses.
func checkTagChange(in *sdk.ChangeTagsForResourceInput) error {
	if len(in.AddTags) > maxChangedTags || len(in.RemoveTagKeys) > maxChangedTags {
		return newErrorf(
			codeInvalidInput,
			"1 validation error detected: Value at 'addTags' or 'removeTagKeys' failed to satisfy constraint: "+
				"Member must have length less than or equal to %d",
			maxChangedTags,
		)
	}

	for _, t := range in.AddTags {
		key := sdkshape.String(t.Key)
		if key == "" || len([]rune(key)) > maxTagKeyLength ||
			len([]rune(sdkshape.String(t.Value))) > maxTagValueLength {
			return newErrorf(
				codeInvalidInput,
				"The tag %q must have a key of 1 to %d characters and a value of at most %d",
				key,
				maxTagKeyLength,
				maxTagValueLength,
			)
		}
	}

	return nil
}
