// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"regexp"
	"strings"
)

// tagCharacters is the class of the characters that IAM, Elastic Load Balancing, CloudWatch Logs and S3 allow in tags, as AWS's
// models write it.
const tagCharacters = `[\p{L}\p{Z}\p{N}_.:/=+\-@]`

// tagText matches texts of these characters.
var tagText = regexp.MustCompile(`^` + tagCharacters + `*$`)

// IsTagText reports whether a text has only the characters that these services allow in the keys and values of tags. EC2
// allows others too.
func IsTagText(text string) bool {
	return tagText.MatchString(text)
}

// TagTextMessage returns AWS's message about a key or a value of a tag that has other characters. at is its place in the
// request, such as tags.1.member.key, and pattern that of the service's model, with %s for the class of characters.
func TagTextMessage(text, at, pattern string) string {
	return "1 validation error detected: Value '" + text + "' at '" + at + "' failed to satisfy constraint: " +
		"Member must satisfy regular expression pattern: " + strings.ReplaceAll(pattern, "%s", tagCharacters)
}
