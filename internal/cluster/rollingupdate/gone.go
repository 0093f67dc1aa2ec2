// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"errors"
	"strings"

	"github.com/aws/smithy-go"
)

// errGone is the error for a machine that somebody else has ended.
var errGone = errors.New("it has ended already")

// isGone reports whether AWS does not know a machine any more, or a group does not have it.
func isGone(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}

	switch api.ErrorCode() {
	case "InvalidInstanceID.NotFound":
		return true
	case "ValidationError":
		return strings.Contains(api.ErrorMessage(), "No managed instance found") ||
			strings.Contains(api.ErrorMessage(), "is not part of Auto Scaling group")
	}

	return false
}
