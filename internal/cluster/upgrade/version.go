// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"fmt"

	"github.com/Masterminds/semver/v3"
)

// Version is a release of Kubernetes. The zero value is unknown.
type Version struct {
	// Major, Minor and Patch are the numbers of 1.36.3.
	Major, Minor, Patch uint64
}

// ParseVersion parses a version such as 1.36.3 or v1.36.3.
func ParseVersion(text string) (Version, error) {
	v, err := semver.NewVersion(text)
	if err != nil {
		return Version{}, fmt.Errorf("parse the Kubernetes version %q: %w", text, err)
	}

	return Version{Major: v.Major(), Minor: v.Minor(), Patch: v.Patch()}, nil
}

// String returns the version without a leading v.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Compare returns -1, 0 or +1.
func (v Version) Compare(other Version) int {
	return cmp.Or(
		cmp.Compare(v.Major, other.Major),
		cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch),
	)
}

// minorsAhead returns how many minor versions v is newer than other; negative if it is older.
func (v Version) minorsAhead(other Version) int { return int(v.Minor) - int(other.Minor) }

// latestReachable returns the version to upgrade to if none was asked for: the newest patch of the next minor
// version, else the newest patch of the same one, else present.
func latestReachable(present Version, available []Version) Version {
	best := present
	for _, v := range available {
		ahead := v.minorsAhead(present)
		if v.Major == present.Major && ahead >= 0 && ahead <= 1 && v.Compare(best) > 0 {
			best = v
		}
	}

	return best
}
