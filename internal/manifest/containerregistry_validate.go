// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// checkContainerRegistry checks the registry that machines pull from. Machines log in to a private
// registry of Amazon ECR with their roles, which have no permissions in another partition, and VPC
// endpoints lead to registries of their own region only.
func checkContainerRegistry(v validator, spec v1alpha1.ClusterSpec) {
	const at = "spec.assets.containerRegistry"
	address := spec.Assets.ContainerRegistry
	if address == "" {
		return
	}

	if !registryPattern().MatchString(address) {
		v.errorf(
			at,
			address,
			"write it as registry.example.com:5000/path, without https://",
			"is not a valid registry address",
		)

		return
	}

	registry, ok := ecraddress.Parse(address)
	if ok && registry.Path == "" {
		v.errorf(
			at,
			address,
			"mirror the images below a path, such as "+registry.Host+"/kubernetes",
			"has no path: the roles of machines could read every repository of the registry",
		)

		return
	}

	region := spec.CloudProvider.AWS.Region
	if !ok || region == "" || registry.Region == region {
		return
	}

	if own := partition.OfRegion(region).Name; registry.Partition() != own {
		v.errorf(
			at,
			address,
			"mirror the images to a registry in "+region,
			"is in another partition of AWS than %s: the roles of machines cannot log in",
			region,
		)
	} else if spec.Networking.NATGateways == NATNone && len(spec.Networking.VPCEndpoints) > 0 {
		v.errorf(
			at,
			address,
			"mirror the images to a registry in "+region,
			"is in another region than %s: machines without internet access reach registries of their own region only",
			region,
		)
	}
}
