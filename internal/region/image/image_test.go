// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/image"
)

func cacheDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		return filepath.Join(dir, "image")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "slipway", "image")
}

// The image is in the cache that all other tests use, so building it here warms the cache.
func TestBuild(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: building an image needs root")
	}
	opts := image.Options{CacheDir: cacheDir(t), Arch: runtime.GOARCH, Progress: func(s string) { t.Log(s) }}
	img, err := image.Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if img.ID != image.ComputeID(image.Debian12, runtime.GOARCH) {
		t.Errorf("identity %s, want %s", img.ID, image.ComputeID(image.Debian12, runtime.GOARCH))
	}
	for _, path := range []string{
		"usr/lib/systemd/systemd", "usr/bin/cloud-init", "usr/bin/python3", "usr/sbin/mkfs.ext4", "usr/bin/curl",
		"usr/bin/openssl", "usr/sbin/iptables", "usr/sbin/ethtool", "usr/bin/socat", "etc/ssl/certs/ca-certificates.crt",
		"usr/bin/aws", "usr/sbin/netplan", "usr/lib/systemd/systemd-timesyncd", "usr/lib/udev/rules.d/70-ec2-nvme-devices.rules",
		"etc/containerd/certs.d/198.18.0.1:5000/hosts.toml", "etc/kubernetes/kubelet.conf.d/10-region.conf",
	} {
		if _, err := os.Stat(filepath.Join(img.Root, path)); err != nil {
			t.Errorf("image lacks /%s: %v", path, err)
		}
	}
	for _, path := range []string{"usr/sbin/conntrack", "usr/sbin/nft", "usr/sbin/grub-install", "etc/network/interfaces", "usr/lib/modules", "boot/vmlinuz*"} {
		if found, err := filepath.Glob(filepath.Join(img.Root, path)); err != nil || len(found) > 0 {
			t.Errorf("the published image has no /%s, or a kernel of its own: %q, %v", path, found, err)
		}
	}
	for path, want := range map[string]string{
		"etc/environment":                     "AWS_ENDPOINT_URL=http://198.18.0.1",
		"etc/cloud/ds-identify.cfg":           "datasource: Ec2",
		"etc/cloud/cloud.cfg.d/99-region.cfg": "strict_id: false",
		"etc/cloud/cloud.cfg":                 " - ssh-import-id", // Debian's own
	} {
		data, err := os.ReadFile(filepath.Join(img.Root, path))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("/%s does not say %q (%v)", path, want, err)
		}
	}
	again, err := image.Build(t.Context(), opts)
	if err != nil || again != img {
		t.Errorf("second build: %+v, %v; want the cached %+v", again, err, img)
	}
}

func TestBuildNamesAllThatIsMissing(t *testing.T) {
	_, err := image.Build(t.Context(), image.Options{CacheDir: t.TempDir(), Arch: "amd64", LookPath: func(string) string { return "" }})
	if err == nil {
		t.Fatal("a build without tools succeeded")
	}
	for _, want := range []string{"Debian package debootstrap", "Debian package gpgv", "Debian package mount", "Debian package coreutils"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
}

func TestFind(t *testing.T) {
	if _, err := image.Find(t.TempDir(), "ami-0123"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("find in an empty cache: %v, want fs.ErrNotExist", err)
	}
	if _, err := image.Find(t.TempDir(), "../ami"); err == nil {
		t.Error("an id that leaves the cache was accepted")
	}
}

func TestInterruptedBuildLeavesNoImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: building an image needs root")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := image.Build(ctx, image.Options{CacheDir: dir, Arch: runtime.GOARCH}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled build: %v", err)
	}
	if _, err := image.Find(dir, image.ComputeID(image.Debian12, runtime.GOARCH)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an interrupted build left an image: %v", err)
	}
}
