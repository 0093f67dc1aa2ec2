// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"io/fs"
	"runtime"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/image"
)

// ec2Architectures returns the EC2 name of each architecture, by Go's name.
func ec2Architectures() map[string]string {
	return map[string]string{"amd64": "x86_64", "arm64": "arm64"}
}

// publisher is how the images of a distribution are published in AWS.
type publisher struct {
	distribution string
	title        string
	owner        string // account ID
	rootDevice   string
	namePrefix   string
	nameSuffix   string
	parameter    string // prefix of the SSM parameter with the ID of the newest image
	parameterEnd string
}

// publishers returns the distributions that machines of the region boot from. Owners: wiki.debian.org/Cloud/AmazonEC2Image,
// documentation.ubuntu.com/aws.
func publishers() []publisher {
	return []publisher{
		{
			distribution: image.Debian12,
			title:        "Debian 12",
			owner:        "136693071363",
			rootDevice:   "/dev/xvda",
			namePrefix:   "debian-12-",
			nameSuffix:   "-slipway",
			parameter:    "/aws/service/debian/release/12/latest/",
		},
		{
			distribution: image.Ubuntu2404,
			title:        "Ubuntu 24.04",
			owner:        "099720109477",
			rootDevice:   "/dev/sda1",
			namePrefix:   "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-",
			nameSuffix:   "-server-slipway",
			parameter:    "/aws/service/canonical/ubuntu/server/24.04/stable/current/",
			parameterEnd: "/hvm/ebs-gp3/ami-id",
		},
	}
}

// publicImages returns the region's AMIs. The image of an architecture other than this computer's, and one that is not
// built, can be described and planned with, but an instance cannot boot from it.
func publicImages() []ec2.Image {
	var out []ec2.Image
	for _, p := range publishers() {
		for _, arch := range []string{"amd64", "arm64"} {
			description := p.title + ", built on this computer"
			if arch != runtime.GOARCH {
				description = p.title + ", not built"
			}

			out = append(out, ec2.Image{
				ID:           image.ComputeID(p.distribution, arch),
				Name:         p.namePrefix + arch + p.nameSuffix,
				Description:  description,
				Owner:        p.owner,
				Architecture: ec2Architectures()[arch],
				RootDevice:   p.rootDevice,
				RootSizeGiB:  8,
				Created:      time.Unix(0, 0).UTC(),
			})
		}
	}

	return out
}

// publicParameters returns the public SSM parameters with the IDs of the newest images.
func publicParameters() map[string]string {
	out := map[string]string{}
	for _, p := range publishers() {
		for arch := range ec2Architectures() {
			out[p.parameter+arch+p.parameterEnd] = image.ComputeID(p.distribution, arch)
		}
	}

	return out
}

// unbootableReason returns why no machine can boot from one of [publicImages], or "".
func (p regionPaths) unbootableReason(id string) string {
	for _, d := range image.Distributions() {
		for arch := range ec2Architectures() {
			if id == image.ComputeID(d, arch) && arch != runtime.GOARCH {
				return "This region's machines run on a computer with the architecture " + runtime.GOARCH +
					", which cannot run programs for " + arch + "."
			}
		}

		if id != image.ComputeID(d, runtime.GOARCH) {
			continue
		}

		if _, err := image.Find(p.imageDir(), id); errors.Is(err, fs.ErrNotExist) {
			return "The image of " + d + " is not built on this computer: slipway region image --os " + d + "."
		}
	}

	return ""
}
