// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"archive/tar"
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// built is the folder of built assets, if this machine has one.
func built(t *testing.T) (string, asset.Catalog) {
	t.Helper()
	cache := os.Getenv("SLIPWAY_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
		cache = filepath.Join(dir, "slipway")
	}
	dir := filepath.Join(cache, "assets")
	raw, err := os.ReadFile(filepath.Join(dir, "catalog.yaml"))
	if err != nil {
		t.Skipf("SKIPPED: the assets are not built here (slipway assets build): %v", err)
	}
	c, err := asset.ParseCatalog(raw)
	if err != nil {
		t.Fatal(err)
	}
	return dir, c
}

// TestBuiltImagesStart unpacks every built image and starts its programs with nothing but the image as root.
func TestBuiltImagesStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: changing the root needs root")
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	dir, catalog := built(t)
	commands := map[string][][]string{
		"kube-apiserver":               {{"/usr/local/bin/kube-apiserver", "--version", "Kubernetes v"}},
		"kube-controller-manager":      {{"/usr/local/bin/kube-controller-manager", "--version", "Kubernetes v"}},
		"kube-scheduler":               {{"/usr/local/bin/kube-scheduler", "--version", "Kubernetes v"}},
		"kube-proxy":                   {{"/usr/local/bin/kube-proxy", "--version", "Kubernetes v"}, {"/usr/sbin/nft", "-j", "list", "ruleset", `{"nftables"`}},
		"coredns":                      {{"/coredns", "-version", "CoreDNS"}},
		"flannel":                      {{"/opt/bin/flanneld", "--version", "v0."}, {"/usr/sbin/nft", "--version", "nftables"}, {"/usr/sbin/iptables", "--version", "nf_tables"}, {"/bin/cp", "/etc/passwd", "/tmp", ""}},
		"flannel-cni-plugin":           {{"/flannel", `"1.0.0"`}, {"/bin/cp", "-f", "/flannel", "/tmp/flannel", ""}},
		"pause":                        {{"/pause", "--version", "pause"}},
		"probe":                        {{"/probe", "cat", "/etc/passwd", "nonroot"}},
		"metrics-server":               {{"/metrics-server", "--version", "v"}},
		"local-path-provisioner":       {{"/local-path-provisioner", "--version", "0.0"}},
		"aws-cloud-controller-manager": {{"/aws-cloud-controller-manager", "--version", "v1."}},
		"external-dns":                 {{"/external-dns", "--version", "v0."}},
		"prometheus":                   {{"/bin/prometheus", "--version", "prometheus, version 3."}, {"/bin/promtool", "--version", "promtool, version 3."}},
		"alertmanager":                 {{"/bin/alertmanager", "--version", "alertmanager, version 0."}, {"/bin/amtool", "--version", "amtool, version 0."}},
		"node-exporter":                {{"/bin/node_exporter", "--version", "node_exporter, version 1."}},
		"cert-manager-controller":      {{"/cert-manager", "controller", "-h", "configuration file"}},
		"cert-manager-webhook":         {{"/cert-manager", "webhook", "-h", "configuration file"}},
		"cert-manager-cainjector":      {{"/cert-manager", "cainjector", "-h", "configuration file"}},
		"karpenter":                    {{"/karpenter", "--help", "Usage of karpenter"}},
		"amazon-k8s-cni":               {{"/app/aws-cni", "0.4.0"}, {"/app/egress-cni", "0.4.0"}, {"/usr/sbin/iptables", "--version", "nf_tables"}},
		"amazon-k8s-cni-init":          {{"/init/aws-vpc-cni-init", "Copying CNI plugin binaries"}},
		"traefik":                      {{"/traefik", "version", "3."}},
		"busybox":                      {{"/bin/sh", "-c", "echo started", "started"}},
	}
	path, err := layout.FromPath(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range catalog.Images {
		t.Run(i.Name+" "+i.Version, func(t *testing.T) {
			hash, err := v1.NewHash(cmp.Or(i.Digests["amd64"], i.Digests["arm64"]))
			if err != nil {
				t.Fatal(err)
			}
			image, err := path.Image(hash)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Image(image, validate.Fast); err != nil {
				t.Error(err)
			}
			root := t.TempDir()
			unpack(t, image, root)
			if len(commands[i.Name]) == 0 {
				t.Fatalf("no command is known for image %s", i.Name)
			}
			for _, c := range commands[i.Name] {
				argv, want := c[:len(c)-1], c[len(c)-1]
				if want == "Kubernetes v" {
					want += i.Version
				}
				cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				cmd.SysProcAttr, cmd.Dir, cmd.Env = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET}, "/", []string{"PATH=/usr/sbin", "CNI_COMMAND=VERSION"}
				cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
				cmd.Err = nil // exec looked for the program outside the new root
				if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%v: %v, %s, want %q", argv, err, out, want)
				}
			}
		})
	}
}

func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	stream := mutate.Extract(image)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(target, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, target)
		default:
			var f *os.File
			if f, err = os.OpenFile(target, os.O_CREATE|os.O_WRONLY, h.FileInfo().Mode().Perm()); err == nil {
				_, err = io.Copy(f, r)
				err = errors.Join(err, f.Close())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuiltFilesHaveTheirHash reads every built file as a machine would.
func TestBuiltFilesHaveTheirHash(t *testing.T) {
	dir, catalog := built(t)
	for _, f := range catalog.Files {
		out, err := exec.CommandContext(t.Context(), "sha256sum", filepath.Join(dir, "files", strings.TrimPrefix(f.URL, "https://"))).Output()
		if err != nil || !strings.HasPrefix(string(out), f.SHA256) {
			t.Errorf("%s: %s, %v, want %s", f.Name, out, err, f.SHA256)
		}
	}
}
