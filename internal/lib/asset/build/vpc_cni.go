// SPDX-License-Identifier: Apache-2.0

package build

import (
	"maps"
	"path/filepath"
	"slices"
)

// vpcCNI is the module of the Amazon VPC CNI, and the layer with its IPAM daemon and its CNI plugins. vpcCNIInit is the layer of the
// program that prepares a machine.
const (
	vpcCNI     = "amazon-vpc-cni"
	vpcCNIInit = vpcCNI + "-init"
)

// The program of [vpcCNIInit].
const vpcCNIInitProgram = "aws-vpc-cni-init"

// vpcCNIRecipe is the Amazon VPC CNI, with the two files that its programs read from their directory.
func vpcCNIRecipe() moduleRecipe {
	return moduleRecipe{
		Name:     vpcCNI,
		Pins:     "github.com/aws/amazon-vpc-cni-k8s",
		Packages: []string{"tool"},
		Programs: map[string]string{"routed-eni-cni-plugin": "aws-cni", "egress-cni-plugin": "egress-cni"},
		LDFlags:  "-X github.com/aws/amazon-vpc-cni-k8s/pkg/version.Version=v{version}",
		Data: map[string]string{
			"10-aws.conflist":  "misc/10-aws.conflist",
			"eni-max-pods.txt": "misc/eni-max-pods.txt",
		},
	}
}

// vpcCNIImages returns the images of the Amazon VPC CNI. The daemon calls iptables. Programs are where upstream's images have them,
// because they find each other by paths relative to their working directory, which the manifest sets.
func vpcCNIImages() []imageRecipe {
	const registry = "602401143452.dkr.ecr.us-west-2.amazonaws.com/"

	return []imageRecipe{
		{
			Name:       "amazon-k8s-cni",
			Module:     vpcCNI,
			Ref:        registry + "amazon-k8s-cni:v{version}",
			Layers:     []string{"base", "nftables", vpcCNI},
			Entrypoint: []string{"/app/aws-vpc-cni"},
		},
		{
			Name:       "amazon-k8s-cni-init",
			Module:     vpcCNI,
			Ref:        registry + "amazon-k8s-cni-init:v{version}",
			Layers:     []string{"base", vpcCNIInit},
			Entrypoint: []string{"/init/" + vpcCNIInitProgram},
		},
	}
}

// vpcCNILayer returns the programs of the image amazon-k8s-cni, from the directory of the module's results.
func vpcCNILayer(results string) ([]archiveEntry, error) {
	const directory = "app/"
	programs, err := listPrograms(filepath.Join(results, "bin"), directory)
	if err != nil {
		return nil, err
	}

	entries := slices.DeleteFunc(programs, func(e archiveEntry) bool { return e.name == directory+vpcCNIInitProgram })
	for _, name := range slices.Sorted(maps.Keys(vpcCNIRecipe().Data)) {
		entries = append(entries, archiveEntry{
			name:   directory + name,
			source: filepath.Join(results, "data", name),
			mode:   0o644,
		})
	}

	return entries, nil
}

// vpcCNIInitLayer returns the program of the image amazon-k8s-cni-init.
func vpcCNIInitLayer(results string) []archiveEntry {
	return []archiveEntry{{
		name:   "init/" + vpcCNIInitProgram,
		source: filepath.Join(results, "bin", vpcCNIInitProgram),
		mode:   0o755,
	}}
}
