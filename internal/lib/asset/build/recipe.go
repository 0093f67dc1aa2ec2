// SPDX-License-Identifier: Apache-2.0

package build

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// recipeVersion is a part of every cache key. Increase it if the build steps change but their
// inputs do not.
const recipeVersion = "1"

// packVersion is a part of the key of the packed files and images. Increase it if packing changes.
const packVersion = "2"

// moduleRecipe describes the build of a nested module of assets/. Its JSON is a part of the cache
// key, so that a renamed field causes a rebuild.
type moduleRecipe struct {
	Name     string            // the name of its folder
	Pins     string            // the required module that determines the version; if empty, Version does
	Version  string            // of a program of our own
	Programs map[string]string // names of programs that differ from the last part of their package
	Packages []string          // the package arguments of go build
	Tags     string            // build tags
	LDFlags  string            // {version}, {major} and {minor} are replaced
	CGO      bool              // links statically against glibc

	// MinorHasMajor says that the minor number of the module's version has the release's major and minor numbers: v0.316.0 is
	// release 3.16.0.
	MinorHasMajor bool `json:",omitempty"`
	// Added are files that the pinned module embeds, but does not contain, by their paths below its root; the values are
	// files of our module. The packages are then built in a copy of the pinned module, with its own go.mod and go.sum.
	Added map[string]string `json:",omitempty"`
	// folder is where the packages are built; if empty, the folder of the module.
	folder string

	// Tests are packages whose test programs are built too, by the names of the programs.
	Tests map[string]string `json:",omitempty"`
	// Data are files of the module that Pins names, as paths below its root, by their paths below the result's
	// directory data.
	Data map[string]string `json:",omitempty"`
}

// fileRecipe is one downloadable file.
type fileRecipe struct {
	Name   string
	Module string // provides the programs and the version
	URL    string // {version} and {arch} are replaced
	Format asset.FileFormat
	// Program is the name of the program in a file of format binary.
	Program string
	// Prefix precedes the name of every program in an archive.
	Prefix string
}

// imageRecipe is one container image.
type imageRecipe struct {
	Name       string
	Module     string // provides the version
	Ref        string // {version} is replaced
	Layers     []string
	Entrypoint []string
	Command    []string // the default arguments
	User       string   // if empty, root
	Unlisted   bool     // it is served, but not in the catalogue
}

// moduleRecipes returns the modules in build order.
func moduleRecipes() []moduleRecipe {
	return slices.Concat(
		runtimeRecipes(),
		networkRecipes(),
		ownRecipes(),
		earlierKubernetesRecipes(),
		otherVersionRecipes(),
		addonRecipes(),
		[]moduleRecipe{conformanceRecipe(), sampleServerRecipe()},
	)
}

// kubernetesRecipe returns the recipe of the module with all programs of one version of Kubernetes.
func kubernetesRecipe(module string) moduleRecipe {
	const k8s = "k8s.io/component-base/version"

	return moduleRecipe{
		Name:     module,
		Pins:     "k8s.io/kubernetes",
		Packages: []string{"."},
		LDFlags:  "-X " + k8s + ".gitVersion=v{version} -X " + k8s + ".gitMajor={major} -X " + k8s + ".gitMinor={minor} -X " + k8s + ".gitTreeState=clean",
	}
}

// runtimeRecipes are Kubernetes, etcd and the container runtime.
func runtimeRecipes() []moduleRecipe {
	const (
		containerd = "github.com/containerd/containerd/v2"
		etcd       = "go.etcd.io/etcd"
	)

	return []moduleRecipe{
		// The longest build is first, so that a failure of another one does not hide how long the
		// whole build takes.
		kubernetesRecipe(defaultKubernetesModule),
		{
			Name:     "etcd",
			Pins:     etcd + "/server/v3",
			Packages: []string{etcd + "/server/v3", etcd + "/etcdctl/v3", etcd + "/etcdutl/v3"},
			Programs: map[string]string{"server": "etcd"},
		},
		{
			Name: "containerd",
			Pins: containerd,
			Packages: []string{
				containerd + "/cmd/containerd",
				containerd + "/cmd/containerd-shim-runc-v2",
				containerd + "/cmd/ctr",
			},
			LDFlags: "-X " + containerd + "/version.Version=v{version} -X " + containerd + "/version.Package=" + containerd,
		},
		{
			Name:     "runc",
			Pins:     "github.com/opencontainers/runc",
			Packages: []string{"github.com/opencontainers/runc"},
			Tags:     "seccomp netgo osusergo",
			CGO:      true,
		},
	}
}

// networkRecipes are the programs of the pod network and of cluster DNS.
func networkRecipes() []moduleRecipe {
	const plugins = "github.com/containernetworking/plugins"

	return []moduleRecipe{
		{
			Name:     "cni-plugins",
			Pins:     plugins,
			Packages: []string{"tool"},
			LDFlags:  "-X " + plugins + "/pkg/utils/buildversion.BuildVersion=v{version}",
		},
		// flannel needs cgo for its udp backend.
		{
			Name:     "flannel",
			Pins:     "github.com/flannel-io/flannel",
			Packages: []string{"tool"},
			Programs: map[string]string{"flannel": "flanneld"},
			LDFlags:  "-X github.com/flannel-io/flannel/pkg/version.Version=v{version}",
			Tags:     "netgo osusergo",
			CGO:      true,
		},
		{Name: "coredns", Pins: "github.com/coredns/coredns", Packages: []string{"tool"}},
	}
}

// ownRecipes are the programs that are written for Slipway.
func ownRecipes() []moduleRecipe {
	return []moduleRecipe{
		// The next two are programs of our own. They have the versions of the upstream programs
		// that they replace.
		{Name: "pause", Version: "3.10.1", Packages: []string{"."}},
		{
			Name:     "flannel-cni-plugin",
			Version:  "1.9.1-flannel3",
			Packages: []string{"."},
			Programs: map[string]string{"flannel-cni-plugin": "flannel"},
		},
		{Name: "probe", Version: "1.0.0", Packages: []string{"."}},
		{Name: "cp", Version: "1.0.0", Packages: []string{"."}},
	}
}

// fileRecipes returns all files. Those of the default versions are first.
func fileRecipes() []fileRecipe {
	out := slices.Concat(kubernetesFiles(defaultKubernetesModule), runtimeFiles())
	for _, minor := range earlierKubernetes() {
		out = append(out, kubernetesFiles(kubernetesModule(minor))...)
	}

	return append(out, otherVersionFiles()...)
}

func runtimeFiles() []fileRecipe {
	const github = "https://github.com/"

	return []fileRecipe{
		{
			Name:   "containerd",
			Module: "containerd",
			Format: asset.FormatArchive,
			Prefix: "bin/",
			URL:    github + "containerd/containerd/releases/download/v{version}/containerd-{version}-linux-{arch}.tar.gz",
		},
		{
			Name:    "runc",
			Module:  "runc",
			URL:     github + "opencontainers/runc/releases/download/v{version}/runc.{arch}",
			Format:  asset.FormatBinary,
			Program: "runc",
		},
		{
			Name:   "cni-plugins",
			Module: "cni-plugins",
			Format: asset.FormatArchive,
			Prefix: "./",
			URL:    github + "containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-{arch}-v{version}.tgz",
		},
		{
			Name:   "etcd",
			Module: "etcd",
			Format: asset.FormatArchive,
			Prefix: "etcd-v{version}-linux-{arch}/",
			URL:    github + "etcd-io/etcd/releases/download/v{version}/etcd-v{version}-linux-{arch}.tar.gz",
		},
	}
}

func imageRecipes() []imageRecipe {
	images := []imageRecipe{
		{
			Name:       "coredns",
			Module:     "coredns",
			Ref:        "registry.k8s.io/coredns/coredns:v{version}",
			Layers:     []string{"base", "coredns"},
			Entrypoint: []string{"/coredns"},
		},
		{
			Name:       "flannel",
			Module:     "flannel",
			Ref:        "ghcr.io/flannel-io/flannel:v{version}",
			Layers:     []string{"base", "nftables", "cp", "flannel"},
			Entrypoint: []string{"/opt/bin/flanneld"},
		},
		{
			Name:       "flannel-cni-plugin",
			Module:     "flannel-cni-plugin",
			Ref:        "ghcr.io/flannel-io/flannel-cni-plugin:v{version}",
			Layers:     []string{"base", "cp", "flannel-cni-plugin"},
			Entrypoint: []string{"/flannel"},
		},
		{
			Name:       "pause",
			Module:     "pause",
			Ref:        "registry.k8s.io/pause:{version}",
			Layers:     []string{"pause"},
			Entrypoint: []string{"/pause"},
		},
		// No upstream registry contains probe, so it is available only with a containerRegistry.
		{
			Name:       "probe",
			Module:     "probe",
			Ref:        "localhost/slipway/probe:v{version}",
			Layers:     []string{"base", "probe"},
			Entrypoint: []string{"/probe"},
		},
	}

	images = append(images, kubernetesImages(defaultKubernetesModule)...)
	for _, minor := range earlierKubernetes() {
		images = append(images, kubernetesImages(kubernetesModule(minor))...)
	}

	return slices.Concat(images, addonImages(), conformanceImages())
}

// nftablesPackages returns nft, which kube-proxy and flannel call, and the Debian 12 packages that
// it needs. It also returns iptables: at its start, flannel removes the iptables rules of an older
// mode, and exits if iptables is missing.
func nftablesPackages() []string {
	return []string{
		"libc6", "libbsd0", "libedit2", "libgmp10", "libip4tc2", "libip6tc2", "libjansson4", "libmd0", "libmnl0", "libnetfilter-conntrack3",
		"libnfnetlink0", "libnftables1", "libnftnl11", "libtinfo6", "libxtables12", "iptables", "nftables",
	}
}
