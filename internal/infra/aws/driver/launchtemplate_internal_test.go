// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// versionDeletions records the versions that are deleted, and refuses to.
type versionDeletions []string

func (d *versionDeletions) DeleteLaunchTemplateVersions(_ context.Context, in *ec2.DeleteLaunchTemplateVersionsInput, _ ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateVersionsOutput, error) {
	*d = append(*d, strings.Join(in.Versions, " "))
	return nil, errors.New("not permitted")
}

// TestOldTemplateVersionsAreDeleted: a template has 10,000 versions at most. An update adds one and deletes those that are older
// than the newest hundred, in one call; a missing permission does not fail it.
func TestOldTemplateVersionsAreDeleted(t *testing.T) {
	t.Parallel()
	for latest, want := range map[int64]string{
		2: "", 100: "", 101: "1", 105: "1 2 3 4 5", 9999: "9890 9891 9892 9893 9894 9895 9896 9897 9898 9899",
	} {
		var got versionDeletions
		deleteOldVersions(t.Context(), &got, "lt-1", latest)
		if all := strings.Join(got, ", "); all != want || len(got) > 1 {
			t.Errorf("the newest version is %d: deleted %q, want %q", latest, all, want)
		}
	}
}
