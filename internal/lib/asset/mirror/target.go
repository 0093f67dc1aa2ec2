// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Target is a place to copy to: a bucket, or a registry.
type Target struct {
	Bucket, Prefix string // of s3://BUCKET/PREFIX
	Registry       string // HOST[:PORT][/PATH]
}

// ParseTarget parses s3://BUCKET[/PREFIX] or HOST[:PORT][/PATH].
func ParseTarget(text string) (Target, error) {
	if rest, ok := strings.CutPrefix(text, "s3://"); ok {
		bucket, prefix, _ := strings.Cut(rest, "/")
		prefix = strings.Trim(prefix, "/")
		isBucket := regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(bucket)
		isPrefix := regexp.MustCompile(`^[A-Za-z0-9._/-]*$`).MatchString(prefix) && !strings.Contains(prefix, "//")
		if isBucket && isPrefix {
			return Target{Bucket: bucket, Prefix: prefix}, nil
		}

		return Target{}, diag.WithHint(
			fmt.Errorf("%q is not a bucket with a prefix that is valid in a URL", text),
			"write it as s3://BUCKET/PREFIX; the prefix has letters, digits, dots, dashes and slashes",
		)
	}

	registry := strings.TrimRight(text, "/")
	const host = `([a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?|[a-z0-9-]+:\d+|localhost)`
	pattern := regexp.MustCompile(`^` + host + `(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	if pattern.MatchString(registry) {
		return Target{Registry: registry}, nil
	}

	return Target{}, diag.WithHint(
		fmt.Errorf("%q is neither a bucket nor a registry", text),
		"write s3://BUCKET/PREFIX for files, or HOST[:PORT][/PREFIX] in lower case and without https:// for images",
	)
}
