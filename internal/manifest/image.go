// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Formats of user data.
const (
	FormatCloudInit = "CloudInit"
	FormatIgnition  = "Ignition"
	// IgnitionType is the MIME type of a part of user data in Ignition's format.
	IgnitionType = "application/vnd.coreos.ignition+json"
)

// defaultDistribution is what machines run unless told otherwise.
const defaultDistribution = "debian-12"

// knownDistributions are the images that their publishers keep up to date in every region, by the name that a manifest may
// give and then by architecture: parameters of Debian, Canonical and Amazon, and the name that Flatcar's images have.
func knownDistributions() map[string]map[string]string {
	const (
		debian  = "ssm:/aws/service/debian/release/12/latest/"
		ubuntu  = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/"
		amazon  = "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
		flatcar = "075585003325/Flatcar-stable-*-hvm"
	)

	return map[string]map[string]string{
		defaultDistribution: {"amd64": debian + "amd64", "arm64": debian + "arm64"},
		"ubuntu-24.04": {
			"amd64": ubuntu + "amd64/hvm/ebs-gp3/ami-id",
			"arm64": ubuntu + "arm64/hvm/ebs-gp3/ami-id",
		},
		"amazon-linux-2023": {"amd64": amazon + "x86_64", "arm64": amazon + "arm64"},
		"flatcar":           {"amd64": flatcar, "arm64": flatcar},
	}
}

// defaultImage puts the image in the place of a distribution's name.
func defaultImage(g *v1alpha1.InstanceGroup, _ *Set) {
	setDefaultText(&g.Spec.Image, defaultDistribution)
	if known := knownDistributions()[g.Spec.Image]; known != nil {
		g.Spec.Image = known[InstanceTypeArch(g.Spec.MachineType)]
	}
}

func defaultFormat(g *v1alpha1.InstanceGroup, _ *Set) {
	format := FormatCloudInit
	if strings.Contains(strings.ToLower(g.Spec.Image), "flatcar") {
		format = FormatIgnition
	}

	setDefaultText(&g.Spec.UserDataFormat, format)
}

// imageForArch is the image of the same distribution for an architecture; what no distribution is known of stays.
func imageForArch(image, arch string) string {
	for _, d := range knownDistributions() {
		for _, i := range d {
			if i == image {
				return d[arch]
			}
		}
	}

	return image
}

// checkUserDataFormat checks that a group's image reads the user data that it gets.
func (v validator) checkUserDataFormat(spec v1alpha1.InstanceGroupSpec) {
	v.checkChoice("spec.userDataFormat", spec.UserDataFormat, FormatCloudInit, FormatIgnition)
	flatcar := strings.Contains(strings.ToLower(spec.Image), "flatcar")
	switch {
	case flatcar && spec.UserDataFormat == FormatCloudInit:
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatIgnition,
			"is nothing that Flatcar reads: it has no cloud-init and no Python",
		)

	case spec.UserDataFormat == FormatIgnition && spec.Role == v1alpha1.RoleBastion:
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatCloudInit+" and an image with cloud-init",
			"is not for a bastion, which is set up by a script",
		)

	case spec.UserDataFormat == FormatIgnition && strings.HasPrefix(spec.Image, "ssm:/aws/service/"):
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatCloudInit,
			"is nothing that %s reads",
			spec.Image,
		)
	}
}

// checkIgnition checks one part that is merged into a machine's configuration.
func (v validator) checkIgnition(path, content string) {
	var doc struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal([]byte(content), &doc); err != nil ||
		!strings.HasPrefix(doc.Ignition.Version, "3.") {
		v.errorf(
			path,
			"",
			`write it as {"ignition":{"version":"3.3.0"},…}`,
			"is no Ignition configuration of version 3",
		)
	}
}
