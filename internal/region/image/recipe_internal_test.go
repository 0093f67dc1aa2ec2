// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

func TestRecipesAreDifferent(t *testing.T) {
	ids := map[string]string{}
	for _, distribution := range Distributions() {
		for _, arch := range []string{"amd64", "arm64"} {
			id := ComputeID(distribution, arch)
			if other := ids[id]; other != "" || !strings.HasPrefix(id, "ami-") || len(id) != len("ami-")+17 {
				t.Errorf("%s for %s has id %q (of another one: %q)", distribution, arch, id, other)
			}
			ids[id] = distribution
		}
	}
	if ComputeID("", "amd64") != ComputeID(Debian12, "amd64") {
		t.Error("Debian 12 is not the default")
	}
	if id := ComputeID("plan9", "amd64"); id != "" {
		t.Errorf("an unknown distribution has id %q", id)
	}
	_, err := Build(t.Context(), Options{CacheDir: t.TempDir(), Distribution: "plan9", Arch: "amd64"})
	if err == nil || !strings.Contains(err.Error(), "plan9") || !strings.Contains(err.Error(), Ubuntu2404) {
		t.Errorf("error %v, want one that names the distribution and those that exist", err)
	}
}

// TestBootstrapArguments: debootstrap checks signatures in any case, and gets what it does not know about Ubuntu.
func TestBootstrapArguments(t *testing.T) {
	got := debianRecipe().debootstrapArguments("/root", "", "", "--arch=amd64")
	want := []string{
		"--force-check-gpg", "--variant=minbase", "--arch=amd64", "--include=ca-certificates,dbus,systemd,systemd-sysv", "bookworm", "/root",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Debian: %q, want %q", got, want)
	}
	got = ubuntuRecipe().debootstrapArguments("/root", "http://mirror.test/ubuntu", "/keys.gpg", "--arch=amd64")
	want = []string{
		"--force-check-gpg", "--variant=minbase", "--arch=amd64", "--keyring=/keys.gpg", "--include=ca-certificates,dbus,systemd,systemd-sysv",
		"noble", "/root", "http://mirror.test/ubuntu", "/usr/share/debootstrap/scripts/gutsy",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Ubuntu: %q, want %q", got, want)
	}
}

// TestUbuntuOverlay: the files that Ubuntu shares with Debian exist, and no file is there twice.
func TestUbuntuOverlay(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range txtar.Parse(ubuntuOverlay()).Files {
		if seen[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		seen[f.Name] = true
	}
	for _, name := range []string{
		"usr/local/sbin/modprobe", "usr/local/sbin/region-resolver", "etc/fstab", "etc/environment", "etc/cloud/ds-identify.cfg",
		"etc/cloud/hypervisor-uuid", "etc/containerd/conf.d/10-region.toml", "etc/containerd/certs.d/198.18.0.1:5000/hosts.toml",
		"etc/kubernetes/kubelet.conf.d/10-region.conf", "etc/systemd/system.conf.d/10-region.conf",
	} {
		if !seen[name] {
			t.Errorf("/%s is missing", name)
		}
	}
	if seen["etc/cloud/cloud.cfg"] {
		t.Error("cloud-init's modules are not those of Ubuntu")
	}
}

// TestDebianPackages: the image has the published lists, without a kernel and a boot loader, and nothing more.
func TestDebianPackages(t *testing.T) {
	got := debianPackages()
	var published []string
	for _, class := range publishedClasses() {
		published = append(published, class.packages...)
		for _, name := range class.packages {
			if !slices.Contains(got, name) {
				t.Errorf("%s of %s is missing", name, class.name)
			}
		}
	}
	more := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return slices.Contains(published, name) })
	if len(more) > 0 {
		t.Errorf("%q is in the image, but not published", more)
	}
	if same := slices.Compact(slices.Clone(got)); !slices.IsSorted(got) || len(same) != len(got) {
		t.Errorf("not sorted, or something is there twice: %q", got)
	}
	for _, name := range got {
		if strings.HasPrefix(name, "linux-") || strings.HasPrefix(name, "grub") || name == "libnss-resolve" || name == "conntrack" || name == "nftables" {
			t.Errorf("%s is in the image", name)
		}
	}
}

// TestMaskedUnits: nothing is masked twice, and not what a namespace lets run or what systemd skips there by itself.
func TestMaskedUnits(t *testing.T) {
	for distribution, units := range map[string][]string{Debian12: maskedDebianUnits(), Ubuntu2404: maskedUbuntuUnits()} {
		slices.Sort(units)
		if same := slices.Compact(slices.Clone(units)); len(same) != len(units) {
			t.Errorf("%s: a unit is there twice: %q", distribution, units)
		}
		for _, unit := range units {
			for _, free := range []string{"cloud-config", "systemd-modules-load", "systemd-networkd.", "systemd-timesyncd", "systemd-udev", "ssh"} {
				if strings.HasPrefix(unit, free) {
					t.Errorf("%s: %s is masked", distribution, unit)
				}
			}
		}
	}
}

// TestKeyringIsChecked: a package with another hash is refused, and not kept.
func TestKeyringIsChecked(t *testing.T) {
	const content = "keys"
	sum := sha256.Sum256([]byte(content))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ubuntu/pool/good.deb":
			w.Write([]byte(content))
		case "/ubuntu/pool/bad.deb":
			w.Write([]byte("other keys"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	for name, want := range map[string]string{"good.deb": "", "bad.deb": "SHA-256", "none.deb": "404"} {
		k := pinnedPackage{path: "pool/" + name, sha256: hex.EncodeToString(sum[:])}
		file := filepath.Join(t.TempDir(), name)
		err := k.download(t.Context(), server.URL+"/ubuntu", file)
		if want == "" {
			if data, readErr := os.ReadFile(file); err != nil || readErr != nil || string(data) != content {
				t.Errorf("%s: %v, %v, %q", name, err, readErr, data)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("%s: error %v, want one that contains %q and the URL", name, err, want)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s was kept: %v", name, err)
		}
	}
}

// TestKeyringOfTheCache: a package in the cache is used without a network, and unpacked; one that was changed is not.
func TestKeyringOfTheCache(t *testing.T) {
	b := builder{opts: Options{CacheDir: t.TempDir(), LookPath: func(string) string { return "/bin/true" }}, recipe: ubuntuRecipe()}
	b.buildDir = filepath.Join(b.opts.CacheDir, ".build")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no network
	if err := makeDir(b.packageCacheDir()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.packageCacheDir(), filepath.Base(b.recipe.keyring.path))
	if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.unpackKeyring(ctx, "http://127.0.0.1:1/ubuntu"); err == nil || !strings.Contains(err.Error(), "keys of the mirror") {
		t.Errorf("error %v: a changed package was used", err)
	}
	b.recipe.keyring.sha256 = hex.EncodeToString(sumOf("changed"))
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a command of a build has its own mount namespace, which needs root")
	}
	got, err := b.unpackKeyring(t.Context(), "http://127.0.0.1:1/ubuntu")
	if want := filepath.Join(b.buildDir, "keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"); err != nil || got != want {
		t.Errorf("keys %q, %v; want %q", got, err, want)
	}
	b.recipe = debianRecipe()
	if got, err := b.unpackKeyring(ctx, ""); got != "" || err != nil {
		t.Errorf("Debian's keys: %q, %v; this machine has them", got, err)
	}
}

func sumOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
