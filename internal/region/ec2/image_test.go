// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	client "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// TestDeprecatedImages: lists leave out the deprecated images of other owners, unless the request names their ids or asks
// for them. A filter of ids is no such name.
func TestDeprecatedImages(t *testing.T) {
	deprecatedAt := func(owner string, at time.Duration) region {
		return newRegion(t, func(cfg *ec2.Config) {
			cfg.Images[0].Owner = owner
			cfg.Images[0].Deprecated = cfg.Now().Add(at)
		})
	}

	byFilter := client.DescribeImagesInput{Filters: filters("image-id", image)}
	included := client.DescribeImagesInput{Filters: filters("image-id", image), IncludeDeprecated: new(true)}

	const publisher, account = "136693071363", "000000000000"

	for _, c := range []struct {
		name  string
		owner string
		at    time.Duration
		in    client.DescribeImagesInput
		want  int
	}{
		{"by a filter", publisher, -time.Hour, byFilter, 0},
		{"of the future", publisher, time.Hour, byFilter, 1},
		{"of the account", account, -time.Hour, byFilter, 1},
		{"by its id", publisher, -time.Hour, client.DescribeImagesInput{ImageIds: []string{image}}, 1},
		{"asked for", publisher, -time.Hour, included, 1},
	} {
		r := deprecatedAt(c.owner, c.at)
		out := must[*client.DescribeImagesOutput](t)(r.DescribeImages(t.Context(), &c.in))
		if len(out.Images) != c.want {
			t.Errorf("an image %s: %d images, want %d", c.name, len(out.Images), c.want)
		}
	}
}
