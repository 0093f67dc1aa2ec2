// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The formats of user data.
const (
	FormatCloudInit = "CloudInit"
	FormatIgnition  = "Ignition"
	// IgnitionType is the MIME type of a user data part in Ignition format.
	IgnitionType = "application/vnd.coreos.ignition+json"
)

// defaultDistribution is the default of spec.image.
const defaultDistribution = "debian-12"

// knownDistributions returns the images that their publishers update in every region, by the name
// of the distribution in a manifest and then by architecture: SSM parameters of Debian, Canonical
// and Amazon, and the name pattern of Flatcar's images.
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

// defaultImage replaces the name of a distribution by its image for the machine type's
// architecture.
func defaultImage(g *v1alpha1.InstanceGroup, s *Set) {
	setDefaultText(&g.Spec.Image, defaultDistribution)
	if known := knownDistributions()[g.Spec.Image]; known != nil {
		g.Spec.Image = known[s.Arch(g.Spec.MachineType)]
	}
}

// defaultFormat selects Ignition for Flatcar images, and CloudInit for all others.
func defaultFormat(g *v1alpha1.InstanceGroup, _ *Set) {
	format := FormatCloudInit
	if strings.Contains(strings.ToLower(g.Spec.Image), "flatcar") {
		format = FormatIgnition
	}

	setDefaultText(&g.Spec.UserDataFormat, format)
}

// imageForArch returns the image of the same distribution for an architecture. It returns an image
// of no known distribution unchanged.
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

// hasSSMAgent reports whether the images of a distribution contain the SSM agent. Unknown images are assumed to.
// Source: https://docs.aws.amazon.com/systems-manager/latest/userguide/ami-preinstalled-agent.html, which lists Amazon
// Linux and Ubuntu, and neither Debian nor Flatcar.
func hasSSMAgent(image string) bool {
	for name, images := range knownDistributions() {
		for _, i := range images {
			if i == image {
				return name != defaultDistribution && name != "flatcar"
			}
		}
	}

	return true
}

// checkSessionManager checks that machines which people reach through Session Manager have its agent.
func checkSessionManager(v validator, s Set) {
	if !s.Cluster.Spec.MachineAccess.SessionManager {
		return
	}

	var without []string
	for _, g := range s.Groups {
		if !hasSSMAgent(g.Spec.Image) {
			without = append(without, g.Metadata.Name)
		}
	}

	if len(without) > 0 {
		v.errorf(
			"spec.machineAccess.sessionManager",
			"true",
			"set spec.image of these groups to amazon-linux-2023, ubuntu-24.04 or an image with the SSM agent",
			"needs the SSM agent, which the image of %s does not contain",
			strings.Join(without, ", "),
		)
	}
}

// checkUserDataFormat checks that a group's image supports its format of user data.
func (v validator) checkUserDataFormat(spec v1alpha1.InstanceGroupSpec) {
	v.checkChoice("spec.userDataFormat", spec.UserDataFormat, FormatCloudInit, FormatIgnition)
	flatcar := strings.Contains(strings.ToLower(spec.Image), "flatcar")
	switch {
	case flatcar && spec.UserDataFormat == FormatCloudInit:
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatIgnition,
			"is not supported by Flatcar, which has no cloud-init and no Python",
		)

	case spec.UserDataFormat == FormatIgnition && spec.Role == v1alpha1.RoleBastion:
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatCloudInit+" and an image with cloud-init",
			"is not supported for a bastion, which is set up by a script",
		)

	case spec.UserDataFormat == FormatIgnition && strings.HasPrefix(spec.Image, "ssm:/aws/service/"):
		v.errorf(
			"spec.userDataFormat",
			spec.UserDataFormat,
			"use "+FormatCloudInit,
			"is not supported by %s",
			spec.Image,
		)
	}
}

// checkIgnition checks a user data part that is merged into the machine's Ignition configuration.
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
			"is not an Ignition configuration of version 3",
		)
	}
}
