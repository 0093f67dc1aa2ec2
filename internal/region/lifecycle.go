// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

// Preflight returns an error that lists everything that this computer lacks to run a region.
func Preflight() error {
	var missing []string
	if runtime.GOOS != "linux" {
		missing = append(missing, "Linux (this is "+runtime.GOOS+")")
	}

	if os.Geteuid() != 0 {
		missing = append(missing, "root (try sudo)")
	}

	packages := map[string]string{"nft": "nftables", "ip": "iproute2", "mkfs.ext4": "e2fsprogs"}

	for _, program := range []string{"nft", "ip", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program+" (Debian package "+packages[program]+")")
		}
	}

	if len(missing) > 0 {
		return fmt.Errorf("the local region needs: %s", strings.Join(missing, ", "))
	}

	return nil
}

// Distributions returns the distributions that an image can be built of, the default first.
func Distributions() []string { return image.Distributions() }

// EnsureImage builds the image of a distribution, empty for the default, unless the cache has it. It calls progress at the
// start of each stage.
func EnsureImage(ctx context.Context, cache, distribution string, progress func(line string)) error {
	dir, id := regionPaths{cache}.imageDir(), image.ComputeID(distribution, runtime.GOARCH)
	_, err := image.Build(ctx, image.Options{
		CacheDir:     dir,
		Distribution: distribution,
		Arch:         runtime.GOARCH,
		Progress:     func(stage string) { progress("image " + id + ": " + stage) },
	})

	return err
}

// FindImage returns the root file system of the default machine image in the cache. The error wraps fs.ErrNotExist if
// it has not been built.
func FindImage(cache string) (string, error) {
	img, err := image.Find(regionPaths{cache}.imageDir(), image.ComputeID(image.Debian12, runtime.GOARCH))

	return img.Root, err
}

// CheckImageRequirements returns an error that lists everything that this computer lacks to build the image.
func CheckImageRequirements() error { return image.Options{}.CheckRequirements() }

// Destroy removes the region: its process, machines, networks, volumes and state. It can be repeated, and
// does nothing if there is no region. It keeps the image and the assets in the cache.
func Destroy(ctx context.Context, cache string) error {
	p := regionPaths{cache}
	s, err := loadSettings(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := Stop(ctx, cache); err != nil {
		return err
	}

	nw, err := network.New(network.Options{RegionID: s.ID})
	if err != nil {
		return err
	}

	host, err := machine.New(machine.Config{Region: s.ID, Dir: p.regionDir()})
	if err != nil {
		return err
	}

	// Machines first: the links of the networks are in their namespaces.
	if err := errors.Join(host.Destroy(ctx), nw.Destroy(ctx)); err != nil {
		return fmt.Errorf("destroy region %s: %w", s.ID, err)
	}

	// The settings are removed last: if this is killed, the next call needs the region's ID.
	entries, err := os.ReadDir(p.regionDir())
	if err != nil {
		return fmt.Errorf("destroy region %s: %w", s.ID, err)
	}

	for _, e := range entries {
		if e.Name() == "settings.json" {
			continue
		}

		if err := os.RemoveAll(p.regionDir() + "/" + e.Name()); err != nil {
			return fmt.Errorf("destroy region %s: %w", s.ID, err)
		}
	}

	return os.RemoveAll(p.regionDir())
}
