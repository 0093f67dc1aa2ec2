// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// RefAnnotation is the annotation with the reference of an image in an OCI layout.
const RefAnnotation = "org.opencontainers.image.ref.name"

// packImages writes all images to one OCI layout, in which they share blobs, and adds them to the
// catalogue.
func (b *builder) packImages(c *asset.Catalog) error {
	final := filepath.Join(b.Out, "images")
	partial := filepath.Join(b.Out, "images.partial")
	if err := os.RemoveAll(partial); err != nil {
		return err
	}

	path, err := layout.Write(partial, empty.Index)
	if err != nil {
		return fmt.Errorf("create the image layout: %w", err)
	}

	layers := map[string]v1.Layer{}

	for _, r := range b.images {
		image, err := b.buildImage(r, layers)
		if err != nil {
			return fmt.Errorf("build image %s: %w", r.Name, err)
		}

		digest, err := image.Digest()
		if err != nil {
			return fmt.Errorf("hash image %s: %w", r.Name, err)
		}

		ref := b.expandPattern(r.Ref, r.Module)
		if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{RefAnnotation: ref})); err != nil {
			return fmt.Errorf("write image %s: %w", r.Name, err)
		}

		if r.Unlisted {
			continue
		}

		c.Images = append(c.Images, asset.Image{
			Name:    r.Name,
			Version: b.versions[r.Module],
			Ref:     ref,
			Digests: map[string]string{b.arch: digest.String()},
		})
	}

	if err := errors.Join(os.RemoveAll(final), os.Rename(partial, final)); err != nil {
		return fmt.Errorf("replace the image layout: %w", err)
	}

	return nil
}

// buildImage returns an image of the layers of its recipe. It builds each layer once, and keeps it
// in layers.
func (b *builder) buildImage(r imageRecipe, layers map[string]v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(
		mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON,
	)

	for _, name := range r.Layers {
		if layers[name] == nil {
			entries, err := b.listLayerEntries(name)
			if err != nil {
				return nil, fmt.Errorf("list layer %s: %w", name, err)
			}

			raw, err := buildTarball(entries)
			if err != nil {
				return nil, fmt.Errorf("build layer %s: %w", name, err)
			}

			layers[name] = static.NewLayer(raw, types.OCIUncompressedLayer)
		}

		added, err := mutate.Append(
			image,
			mutate.Addendum{Layer: layers[name], History: v1.History{CreatedBy: "slipway assets: " + name}},
		)
		if err != nil {
			return nil, fmt.Errorf("add layer %s: %w", name, err)
		}

		image = added
	}

	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}

	file = file.DeepCopy()
	file.OS = "linux"
	file.Architecture = b.arch
	file.Config.Entrypoint = r.Entrypoint
	file.Config.Cmd = r.Command
	file.Config.User = r.User
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

	return mutate.ConfigFile(image, file)
}

// listLayerEntries returns the entries of a layer. The name of a layer is that of a module or of a [debianLayer], base,
// or one that [builder.listConformanceLayer] knows.
func (b *builder) listLayerEntries(name string) ([]archiveEntry, error) {
	bin := filepath.Join(b.stepDirs[name], "bin")
	if isKubernetesModule(name) {
		return kubernetesLayer(filepath.Join(bin, "kubernetes")), nil
	}

	switch name {
	case "base":
		return baseLayer(), nil
	case "busybox":
		return busyboxLayer(filepath.Join(b.stepDirs[name], "root")), nil
	case "nftables":
		return nftablesLayer(filepath.Join(b.stepDirs[name], "root"))
	case "flannel":
		return listPrograms(bin, "opt/bin/")
	case vpcCNI, vpcCNIInit:
		return listVPCCNILayer(b.stepDirs[vpcCNI], name)
	case "cp", "prometheus", "alertmanager", "node-exporter":
		return listPrograms(bin, "bin/")
	case "etcd":
		return listPrograms(bin, "usr/local/bin/")
	case "flannel-cni-plugin", "pause", "probe", "coredns", "metrics-server", "local-path-provisioner",
		"aws-cloud-controller-manager", "external-dns", certManager, karpenter, "traefik":
		return listPrograms(bin, "")
	}

	entries, err := b.listConformanceLayer(name)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("unknown layer %s", name)
	}

	return entries, err
}

// listVPCCNILayer returns the entries of one of the layers of the Amazon VPC CNI, whose programs are below dir.
func listVPCCNILayer(dir, name string) ([]archiveEntry, error) {
	if name == vpcCNIInit {
		return vpcCNIInitLayer(dir), nil
	}

	return vpcCNILayer(dir)
}

// nftablesLayer returns Debian's files, and the links that the scripts of the packages would
// create.
func nftablesLayer(root string) ([]archiveEntry, error) {
	entries, err := listTree(root)
	for _, name := range []string{"iptables", "ip6tables"} {
		entries = append(
			entries,
			archiveEntry{name: "usr/sbin/" + name, linkTarget: "xtables-nft-multi", mode: 0o777},
		)
	}

	return entries, err
}

// busyboxLayer returns busybox, and a link to it for each command that the scripts of add-ons call.
func busyboxLayer(root string) []archiveEntry {
	entries := []archiveEntry{{name: "bin/busybox", source: filepath.Join(root, "bin", "busybox"), mode: 0o755}}
	for _, name := range []string{"sh", "chmod", "cat", "ls", "mkdir", "rm", "sleep"} {
		entries = append(entries, archiveEntry{name: "bin/" + name, linkTarget: "busybox", mode: 0o777})
	}

	return entries
}

// baseLayer returns the files that programs expect: a folder for temporary files, and the names of
// the users root and nonroot.
func baseLayer() []archiveEntry {
	return []archiveEntry{
		{name: "tmp", dir: true, mode: 0o1777},
		{
			name: "etc/passwd",
			mode: 0o644,
			data: []byte(
				"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
			),
		},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: "etc/nsswitch.conf", mode: 0o644, data: []byte("hosts: files dns\n")},
	}
}

// kubernetesLayer returns the single binary of all Kubernetes programs, and a link to it for each
// program. Machines pull and store it once.
func kubernetesLayer(binary string) []archiveEntry {
	entries := []archiveEntry{{name: "usr/local/bin/kubernetes", source: binary, mode: 0o755}}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"} {
		entries = append(
			entries,
			archiveEntry{name: "usr/local/bin/" + name, linkTarget: "kubernetes", mode: 0o777},
		)
	}

	return entries
}
