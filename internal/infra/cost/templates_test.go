// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/cost"
)

// TestTemplatesThatWereNotRead: a deletion reads no launch templates; what they contain is given instead.
func TestTemplatesThatWereNotRead(t *testing.T) {
	t.Parallel()
	g := group(false, func(asg *awskind.AutoScalingGroup, data *awskind.LaunchTemplateData) {
		asg.Tags = awskind.Tags{awskind.TagGroup: "workers"}
		*data = awskind.LaunchTemplateData{}
	})
	resources := cost.Resources{Existing: existing(g)}
	if got := cost.Estimate(parse(t, testTable), region, resources); got.Before != 0 || len(got.Unpriced) != 1 {
		t.Errorf("without templates: %v, %v", got.Before, got.Unpriced)
	}
	resources.Templates = map[string]awskind.LaunchTemplateData{"workers": {
		InstanceType: "small",
		BlockDevices: []awskind.BlockDevice{{EBS: awskind.EBS{VolumeType: "gp3", VolumeSize: 10}}},
	}}
	got := cost.Estimate(parse(t, testTable), region, resources)
	if want := 2 * (cost.HoursPerMonth + 1.0); got.Before != want || got.After != 0 || len(got.Unpriced) != 0 {
		t.Errorf("%v → %v, without a price %v; want %v → 0", got.Before, got.After, got.Unpriced, want)
	}
}
