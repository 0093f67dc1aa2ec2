// SPDX-License-Identifier: Apache-2.0

package asset

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// NewestPatch returns the newest of the available versions of a minor version such as 1.36. Any other text is returned
// as it is, and so is a minor version of which no version is available.
func NewestPatch(minor string, available []string) string {
	if strings.Count(minor, ".") != 1 {
		return minor
	}

	var newest *semver.Version
	for _, text := range available {
		v, err := semver.StrictNewVersion(text)
		if err != nil || !strings.HasPrefix(text, minor+".") || v.Prerelease() != "" {
			continue
		}

		if newest == nil || v.GreaterThan(newest) {
			newest = v
		}
	}

	if newest == nil {
		return minor
	}

	return newest.String()
}

// CompareVersions returns -1, 0 or +1 for versions of files and images. A text that is not a version is lower than one
// that is.
func CompareVersions(a, b string) int {
	x, xErr := semver.NewVersion(a)
	y, yErr := semver.NewVersion(b)

	switch {
	case xErr == nil && yErr == nil:
		return x.Compare(y)
	case xErr == nil:
		return 1
	case yErr == nil:
		return -1
	}

	return strings.Compare(a, b)
}
