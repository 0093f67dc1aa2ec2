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
	"time"

	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

// Preflight says what this machine lacks to run a region, all at once.
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
		return fmt.Errorf("the local region needs %s", strings.Join(missing, ", "))
	}

	return nil
}

// EnsureImage builds the machines' image unless the cache holds it, and tells progress of each stage.
func EnsureImage(ctx context.Context, cache string, progress func(line string)) error {
	id := image.ComputeID(runtime.GOARCH)
	if _, err := image.Find(regionPaths{cache}.imageDir(), id); err == nil {
		return nil
	}

	_, err := image.Build(ctx, image.Options{
		CacheDir: regionPaths{cache}.imageDir(), Arch: runtime.GOARCH,
		Progress: func(stage string) { progress("image " + id + ": " + stage) },
	})

	return err
}

// Destroy removes the region: its process, machines, networks, volumes and state. It works in whatever state the
// region is, and does nothing where there is none. The image and the assets stay in the cache.
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

	nw, err := network.New(
		network.Options{RegionID: s.ID, Clock: time.Now},
	) //nolint:forbidigo // nothing is timed in a removal
	if err != nil {
		return err
	}

	host, err := machine.New(machine.Config{Region: s.ID, Dir: p.regionDir()})
	if err != nil {
		return err
	}

	// Machines first: their namespaces hold the networks' links.
	if err := errors.Join(host.Destroy(ctx), nw.Destroy(ctx)); err != nil {
		return fmt.Errorf("destroy region %s: %w", s.ID, err)
	}

	// The settings go last: they name what belongs to the region, should this be killed before its end.
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
