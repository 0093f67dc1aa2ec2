// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// TestOpenChoosesRegion: a session is in the region of the manifest, else in the caller's; a caller's
// region that differs from the manifest's is refused, and requests do not change the caller's region.
func TestOpenChoosesRegion(t *testing.T) {
	for _, c := range []struct{ caller, manifest, want string }{
		{"", "eu-west-1", "eu-west-1"},
		{"eu-west-1", "eu-west-1", "eu-west-1"},
		{"eu-west-1", "", "eu-west-1"},
		{"", "", "us-east-1"},
		{"us-east-1", "eu-west-1", ""},
	} {
		env := &cluster.Env{
			Region: c.caller,
			Calls:  &transport.CallLimiter{},
			AWS: func(_ context.Context, region string) (sdk.Config, error) {
				if region == "" {
					region = "us-east-1"
				}

				return sdk.Config{Region: region}, nil
			},
		}
		session, err := cluster.Open(t.Context(), env, "demo", c.manifest)
		if c.want == "" {
			if err == nil {
				t.Errorf("%+v: not refused", c)
			}

			continue
		}
		if err != nil || session.Config.Region != c.want || env.Region != c.caller {
			t.Errorf("%+v: session %+v, %v", c, session, err)
		}
	}
}

// TestReviewChanges: objects to publish or to delete are changes, also if the plan is empty.
func TestReviewChanges(t *testing.T) {
	for _, c := range []struct {
		review  cluster.Review
		isEmpty bool
		changes bool
	}{
		{cluster.Review{}, true, false},
		{cluster.Review{Unpublished: []string{"demo/machine/x"}}, false, true},
		{cluster.Review{Plan: plan.Plan{Steps: []plan.Step{{Action: plan.Create}}}}, false, true},
		{cluster.Review{Deletion: cluster.Deletion{Objects: []cluster.ObjectSet{{}}}}, true, false},
		{cluster.Review{Deletion: cluster.Deletion{Objects: []cluster.ObjectSet{{Keys: []string{"a"}}}}}, false, true},
		{cluster.Review{Stack: cluster.StackReview{Recreate: true}}, true, true},
	} {
		if c.review.IsEmpty() != c.isEmpty || c.review.HasChanges() != c.changes {
			t.Errorf("%+v: empty %v, changes %v", c.review, c.review.IsEmpty(), c.review.HasChanges())
		}
	}
}
