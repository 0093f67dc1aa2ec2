// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"time"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// publishedImage is an AMI and the name of the SSM parameter with its ID; empty if its owner publishes none.
type publishedImage struct {
	ec2.Image
	parameter string
}

type imageList []publishedImage

func (l *imageList) add(id, name, owner, root, arch, parameter string) { //revive:disable-line:argument-limit
	*l = append(*l, publishedImage{
		ec2.Image{
			ID:           id,
			Name:         name,
			Owner:        owner,
			Architecture: arch,
			RootDevice:   root,
			RootSizeGiB:  8,
			Created:      time.Unix(int64(len(*l)), 0).UTC(),
		},
		parameter,
	})
}

// publishedImages returns AMIs with the names, owners, root devices and parameters that the distributions
// publish in AWS.
func publishedImages() []publishedImage {
	var out imageList
	const (
		debian, canonical, amazon, flatcar = "136693071363", "099720109477", "137112412989", "075585003325"
		debianAt, ubuntuAt                 = "/aws/service/debian/release/12/latest/", "/aws/service/canonical/ubuntu/server/24.04/stable/current/"
		amazonAt                           = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
	)

	out.add(ImageID, "debian-12-amd64-20260101-2300", debian, "/dev/xvda", "x86_64", ImageParameter)
	out.add(
		"ami-0123456789abcdef1",
		"debian-12-arm64-20260101-2300",
		debian,
		"/dev/xvda",
		"arm64",
		debianAt+"arm64",
	)

	out.add(
		"ami-0123456789abcdef2",
		"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260101",
		canonical,
		"/dev/sda1",
		"x86_64",
		ubuntuAt+"amd64/hvm/ebs-gp3/ami-id",
	)

	out.add(
		"ami-0123456789abcdef3",
		"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20260101",
		canonical,
		"/dev/sda1",
		"arm64",
		ubuntuAt+"arm64/hvm/ebs-gp3/ami-id",
	)

	out.add(
		"ami-0123456789abcdef4",
		"al2023-ami-2023.9.20260101.0-kernel-6.1-x86_64",
		amazon,
		"/dev/xvda",
		"x86_64",
		amazonAt+"x86_64",
	)

	out.add(
		"ami-0123456789abcdef5",
		"al2023-ami-2023.9.20260101.0-kernel-6.1-arm64",
		amazon,
		"/dev/xvda",
		"arm64",
		amazonAt+"arm64",
	)

	out.add("ami-0123456789abcdef6", "Flatcar-stable-4230.2.4-hvm", flatcar, "/dev/xvda", "x86_64", "")
	out.add("ami-0123456789abcdef7", "Flatcar-stable-4230.2.4-arm64-hvm", flatcar, "/dev/xvda", "arm64", "")

	return out
}

func ec2Images(list []publishedImage) []ec2.Image {
	out := make([]ec2.Image, 0, len(list))
	for _, p := range list {
		out = append(out, p.Image)
	}

	return out
}

func imageParameters(list []publishedImage) map[string]string {
	out := map[string]string{}
	for _, p := range list {
		if p.parameter != "" {
			out[p.parameter] = p.ID
		}
	}

	return out
}
