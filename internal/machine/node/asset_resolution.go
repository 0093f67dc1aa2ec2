// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// ProxyImage is the image of kube-proxy, which runs on every node. Machines without the program nft take it from there.
const ProxyImage = "kube-proxy"

// networkImages returns the images of a pod network plugin, which run on every node.
func networkImages(cni string) []string {
	switch cni {
	case v1alpha1.CNIAmazonVPC:
		return []string{"amazon-k8s-cni", "amazon-k8s-cni-init"}
	case v1alpha1.CNICilium: // those of a channel
		return nil
	}

	return []string{"flannel", "flannel-cni-plugin"}
}

// MissingImageHint returns where the images of the Amazon VPC CNI come from if err says that the catalogue has none of them; empty
// otherwise. AWS has them in registries that answer only to its customers, so the embedded catalogue, which anybody can use,
// does not name them.
func MissingImageHint(err error) string {
	if !errors.Is(err, asset.ErrNotFound) || !strings.Contains(err.Error(), networkImages(v1alpha1.CNIAmazonVPC)[0]) {
		return ""
	}

	return "give a catalogue with the images of the Amazon VPC CNI: slipway assets build --addon-images, then slipway assets mirror " +
		"and slipway create --assets FILE"
}

// ResolveAssets looks up the files and images that the machines of a group of a cluster with an architecture need. All assets but
// those of Kubernetes have the catalogue's default version. Images have digests. Errors come from the catalogue unchanged.
func ResolveAssets(
	c asset.Catalog,
	cluster v1alpha1.ClusterSpec,
	group v1alpha1.InstanceGroupSpec,
	arch string,
) ([]File, map[string]string, error) {
	versions := map[string]string{"containerd": "", "runc": "", "cni-plugins": "", "kubelet": groupVersion(cluster, group)}
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

	for name, version := range ImageVersions(cluster, group) {
		ref, err := c.ImageVersion(name, version, arch)
		if err != nil {
			return nil, nil, err
		}

		refs[name] = ref
	}

	return files, refs, nil
}

// groupVersion returns the version of Kubernetes of a group's machines (without "v"): its own, or that of the cluster.
func groupVersion(cluster v1alpha1.ClusterSpec, group v1alpha1.InstanceGroupSpec) string {
	return cmp.Or(group.KubernetesVersion, cluster.KubernetesVersion)
}

// ImageVersions returns the images that the machines of a group of a cluster need, each with its version in the catalogue; empty: the
// default.
func ImageVersions(cluster v1alpha1.ClusterSpec, group v1alpha1.InstanceGroupSpec) map[string]string {
	images := map[string]string{"pause": "", ProxyImage: groupVersion(cluster, group)}
	if group.WarmPool.PoolState != "" || group.Role == v1alpha1.RoleControlPlane {
		// The machines of the pool pull what runs on every node, see [Document.HasWarmPool]. The control plane renders the
		// add-ons with these images.
		for _, name := range networkImages(cluster.Networking.CNI) {
			images[name] = ""
		}
	}

	if group.Role != v1alpha1.RoleControlPlane {
		return images
	}

	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		images[name] = groupVersion(cluster, group)
	}

	images["coredns"] = ""

	return images
}
