// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

const (
	// ProxyImage is the image of kube-proxy, which runs on every node. Machines without the program nft take it from there.
	ProxyImage = "kube-proxy"
	// networkImage is the image of flannel.
	networkImage = "flannel"
)

// ResolveAssets looks up the files and images that the machines of a group and architecture need
// for a Kubernetes version (without "v"). All other assets have the catalogue's default version.
// Images have digests. Errors come from the catalogue unchanged.
func ResolveAssets(
	c asset.Catalog,
	group v1alpha1.InstanceGroupSpec,
	kubernetes, arch string,
) ([]File, map[string]string, error) {
	versions := map[string]string{"containerd": "", "runc": "", "cni-plugins": "", "kubelet": kubernetes}
	if group.Role == v1alpha1.RoleControlPlane {
		versions["etcd"] = ""
	}

	var files []File

	for name, version := range versions {
		f, err := c.File(name, version, arch)
		if err != nil {
			return nil, nil, err
		}

		files = append(files, File{
			Name:   f.Name,
			URL:    f.URL,
			SHA256: f.SHA256,
			Form:   string(f.Format),
			Size:   f.Size,
		})
	}

	refs := map[string]string{}

	for name, version := range ImageVersions(group, kubernetes) {
		ref, err := c.ImageVersion(name, version, arch)
		if err != nil {
			return nil, nil, err
		}

		refs[name] = ref
	}

	return files, refs, nil
}

// ImageVersions returns the images that the machines of a group need for a Kubernetes version (without "v"), each with its
// version in the catalogue; empty: the default.
func ImageVersions(group v1alpha1.InstanceGroupSpec, kubernetes string) map[string]string {
	images := map[string]string{"pause": "", ProxyImage: kubernetes}
	if group.WarmPool.PoolState != "" {
		// The machines of the pool pull what runs on every node, see [Document.HasWarmPool].
		images[networkImage] = ""
		images["flannel-cni-plugin"] = ""
	}

	if group.Role != v1alpha1.RoleControlPlane {
		return images
	}

	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		images[name] = kubernetes
	}

	// The control plane renders the add-ons with these images.
	for _, name := range []string{"coredns", networkImage, "flannel-cni-plugin"} {
		images[name] = ""
	}

	return images
}
