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

// queryDebianVersions returns the versions of the packages that apt would download, as name=version
// separated by spaces.
func (b *builder) queryDebianVersions(ctx context.Context) (string, error) {
	out, err := b.runCommand(ctx, "/", append([]string{"apt-cache", "policy"}, b.debianPackages...)...)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf(
			"build the nftables layer: %w: apt (the build requires Debian 12 and its packages)",
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

	if len(versions) != len(b.debianPackages) {
		return "", fmt.Errorf(
			"apt knows only %d of the %d packages %s (run apt-get update; the list is for Debian 12)",
			len(versions),
			len(b.debianPackages),
			strings.Join(b.debianPackages, " "),
		)
	}

	return strings.Join(versions, " "), nil
}

// unpackDebianPackages downloads the packages of the nftables layer, and writes the files that nft
// needs to dir/root.
func (b *builder) unpackDebianPackages(ctx context.Context, dir string) error {
	versions, err := b.queryDebianVersions(ctx)
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

	return errors.Join(os.RemoveAll(fetched), pruneRoot(root))
}

// pruneRoot removes all files except nft, the dynamic loader and the shared libraries.
func pruneRoot(root string) error {
	var drop []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		name := strings.TrimPrefix(path, root)
		library := strings.Contains(name, ".so") && !strings.Contains(name, "/gconv/") &&
			!strings.Contains(name, "/audit/")
		if name != "/usr/sbin/nft" && name != "/usr/sbin/xtables-nft-multi" && !library {
			drop = append(drop, path)
		}

		return nil
	})

	for _, path := range drop {
		err = errors.Join(err, os.Remove(path))
	}

	return err
}
