// SPDX-License-Identifier: Apache-2.0

package region

import (
	"runtime"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/image"
)

// ec2Architectures returns the EC2 name of each architecture, by Go's name.
func ec2Architectures() map[string]string {
	return map[string]string{"amd64": "x86_64", "arm64": "arm64"}
}

// debianImages returns the region's AMIs. The image of an architecture other than this computer's can be
// described and planned with, but an instance cannot boot from it.
func debianImages() []ec2.Image {
	var out []ec2.Image
	for _, arch := range []string{"amd64", "arm64"} {
		i := ec2.Image{
			ID:           image.ComputeID(arch),
			Name:         "debian-12-" + arch + "-slipway",
			Description:  "Debian 12, built on this computer",
			Owner:        debianOwner,
			Architecture: ec2Architectures()[arch],
			RootDevice:   "/dev/xvda",
			RootSizeGiB:  8,
			Created:      time.Unix(0, 0).UTC(),
		}
		if arch != runtime.GOARCH {
			i.Description = "Debian 12, not built"
			i.Unbootable = "This region's machines run on a computer with the architecture " + runtime.GOARCH + ", which cannot run programs for " + arch + "."
		}

		out = append(out, i)
	}

	return out
}

// debianParameters returns the public SSM parameters with the IDs of the newest Debian images.
func debianParameters() map[string]string {
	out := map[string]string{}
	for arch := range ec2Architectures() {
		out["/aws/service/debian/release/12/latest/"+arch] = image.ComputeID(arch)
	}

	return out
}
