// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrMissingPackages means that the host lacks Debian packages. The error lists them.
var ErrMissingPackages = errors.New("missing Debian packages")

// debianLayer is an image layer of files of Debian packages.
type debianLayer struct {
	name     string
	packages []string
	// keeps reports whether the layer has a file of the packages. path begins with a slash.
	keeps func(path string) bool
	// revision is a part of the cache key. Change it if keeps changes.
	revision string
}

// debianLayers returns all layers, those that are built on request too.
func debianLayers() []debianLayer {
	return append([]debianLayer{nftablesDebianLayer(), busyboxDebianLayer()}, conformanceDebianLayers()...)
}

// keepPrograms returns a keeps that has the programs, the dynamic loader and shared libraries.
func keepPrograms(programs ...string) func(path string) bool {
	return func(path string) bool {
		library := strings.Contains(path, ".so") && !strings.Contains(path, "/gconv/") &&
			!strings.Contains(path, "/audit/")

		return library || slices.Contains(programs, path)
	}
}

// nftablesDebianLayer is nft, which kube-proxy and flannel call, with the dynamic loader and the shared libraries.
func nftablesDebianLayer() debianLayer {
	return debianLayer{
		name:     "nftables",
		packages: nftablesPackages(),
		revision: "with iptables",
		keeps:    keepPrograms("/usr/sbin/nft", "/usr/sbin/xtables-nft-multi"),
	}
}

// busyboxDebianLayer is a shell and its commands, in one static program.
func busyboxDebianLayer() debianLayer {
	return debianLayer{
		name:     "busybox",
		packages: []string{"busybox-static"},
		keeps:    func(path string) bool { return path == "/bin/busybox" },
	}
}

// checkHostPackages returns an error with all Debian packages that the uncached steps need and the
// host lacks.
func (b *builder) checkHostPackages(ctx context.Context, steps []step) error {
	missing := map[string]bool{}
	for _, s := range steps {
		if b.isCached(s) {
			continue
		}

		for command, pkg := range s.commands {
			if _, err := exec.LookPath(command); err != nil {
				missing[pkg] = true
			}
		}

		for library, pkg := range s.libraries {
			if _, err := b.runCommand(ctx, "/", "pkg-config", "--exists", library); err != nil {
				missing[pkg] = true
			}
		}
	}

	if len(missing) == 0 {
		return nil
	}

	names := strings.Join(slices.Sorted(maps.Keys(missing)), " ")

	return fmt.Errorf(
		"build the assets: %w: %s (run apt-get install --yes %s)",
		ErrMissingPackages,
		names,
		names,
	)
}

// queryDebianVersions returns the versions of a layer's packages that apt would download, as name=version separated by
// spaces.
func (b *builder) queryDebianVersions(ctx context.Context, l debianLayer) (string, error) {
	known := aptVersions{file: filepath.Join(b.Out, ".apt-versions.json"), root: "/", now: b.Clock}
	out, err := known.policy(l.packages, func() (string, error) {
		return b.runCommand(ctx, "/", append([]string{"apt-cache", "policy"}, l.packages...)...)
	})
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf(
			"build the %s layer: %w: apt (the build requires Debian 12 and its packages)",
			l.name,
			ErrMissingPackages,
		)
	}

	if err != nil {
		return "", err
	}

	var versions []string

	for _, m := range regexp.MustCompile(`(?m)^(\S+):\n.*\n  Candidate: (\S+)`).FindAllStringSubmatch(out, -1) {
		if m[2] != "(none)" {
			versions = append(versions, m[1]+"="+m[2])
		}
	}

	if len(versions) != len(l.packages) {
		return "", fmt.Errorf(
			"apt knows only %d of the %d packages %s (run apt-get update; the list is for Debian 12)",
			len(versions),
			len(l.packages),
			strings.Join(l.packages, " "),
		)
	}

	return strings.Join(versions, " "), nil
}

// upstreamVersion returns the version of the first of some packages without what Debian adds to it: that of
// busybox-static=1:1.35.0-4+deb12u1 is 1.35.0.
func upstreamVersion(versions string) string {
	_, version, _ := strings.Cut(strings.Fields(versions)[0], "=")
	if _, rest, hasEpoch := strings.Cut(version, ":"); hasEpoch {
		version = rest
	}

	if i := strings.LastIndex(version, "-"); i >= 0 {
		version = version[:i]
	}

	return version
}

// unpackDebianLayer downloads the packages of a layer, and writes the files that it keeps to dir/root.
func (b *builder) unpackDebianLayer(ctx context.Context, l debianLayer, dir string) error {
	versions, err := b.queryDebianVersions(ctx, l)
	if err != nil {
		return err
	}

	fetched := filepath.Join(dir, "deb")
	if err := os.Mkdir(fetched, 0o755); err != nil {
		return err
	}

	// apt's sandbox user may not be allowed to write here. apt checks the hashes of the packages in
	// any case.
	argv := append(
		[]string{"apt-get", "-q", "-o", "APT::Sandbox::User=root", "download"},
		strings.Fields(versions)...)
	if _, err := b.runCommand(ctx, fetched, argv...); err != nil {
		return err
	}

	debs, err := filepath.Glob(filepath.Join(fetched, "*.deb"))
	if err != nil {
		return err
	}

	root := filepath.Join(dir, "root")

	for _, deb := range debs {
		if _, err := b.runCommand(ctx, dir, "dpkg-deb", "--extract", deb, root); err != nil {
			return err
		}
	}

	return errors.Join(os.RemoveAll(fetched), pruneRoot(root, l.keeps))
}

// pruneRoot removes the files that are not kept. The path that keeps gets begins with a slash.
func pruneRoot(root string, keeps func(path string) bool) error {
	var drop []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		if !keeps(strings.TrimPrefix(path, root)) {
			drop = append(drop, path)
		}

		return nil
	})

	for _, path := range drop {
		err = errors.Join(err, os.Remove(path))
	}

	return err
}
