// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
	"github.com/slipway-k8s/slipway/internal/region"
)

// demoMemoryMiB is the memory that the region, five machines and their Kubernetes need.
const demoMemoryMiB = 6 * 1024

// The states of a prerequisite of the demo.
const (
	checkOK         = "ok"
	checkToBuild    = "to build"
	checkToDownload = "to download"
	checkMissing    = "missing"
)

// demoCheck is one prerequisite of the demo: its name, its state, and where it is or what is missing.
type demoCheck struct {
	name, state, detail string
}

// demoChecker finds out what the demo needs of this computer.
type demoChecker struct {
	app *app
}

// run prints the prerequisites of the demo. It returns an error if one is missing.
func (d demoChecker) run(ctx context.Context) error {
	cache, err := d.app.cacheDir()
	if err != nil {
		return err
	}

	checks := []demoCheck{d.checkAgent(), checkAssetSource()}
	checks = append(checks, d.checkAssets(ctx, cache), checkRegion(), checkImage(cache), checkMemory())
	rows := make([][]string, 0, len(checks))
	missing := 0

	for _, c := range checks {
		rows = append(rows, []string{c.name, c.state, c.detail})
		if c.state == checkMissing {
			missing++
		}
	}

	d.app.printTable([]string{"PREREQUISITE", "STATE", "DETAIL"}, rows)
	if missing > 0 {
		return withHint(
			fmt.Errorf("this computer cannot run the demo: %d of %d prerequisites are missing", missing, len(checks)),
			"install what the table names, and rerun slipway demo --check",
		)
	}

	d.app.printMessage("this computer can run the demo: slipway demo --yes")

	return nil
}

// checkAgent looks for the agent of the machines.
func (d demoChecker) checkAgent() demoCheck {
	path, err := cluster.FindAgent(d.app.Getenv("SLIPWAY_NODE_BINARY"), runtime.GOARCH)
	if err == nil {
		_, err = os.Stat(path)
	}

	if err != nil {
		return demoCheck{"agent", checkMissing, err.Error()}
	}

	return demoCheck{"agent", checkOK, path}
}

// checkAssetSource looks for the sources of the assets.
func checkAssetSource() demoCheck {
	const name = "asset sources"
	source, err := findAssetSource("")
	if err != nil {
		return demoCheck{name, checkMissing, err.Error() + "; run slipway in a checkout of its repository, or install its package"}
	}

	return demoCheck{name, checkOK, source + describeAssetSource(source)}
}

// describeAssetSource tells where the sources of the assets at a path come from.
func describeAssetSource(path string) string {
	if strings.HasSuffix(path, filepath.Join("share", "slipway", "assets")) {
		return " (of the installed package)"
	}

	return " (of this checkout of slipway)"
}

// checkAssets finds out whether the assets are built, or can be.
func (d demoChecker) checkAssets(ctx context.Context, cache string) demoCheck {
	const name = "assets"
	catalog, catalogErr := build.FindCatalog(assetsDir(cache))
	if catalogErr == nil && fetch.IsFetched(catalog) {
		return demoCheck{name, checkOK, catalog + " (upstream's releases)"}
	}

	if catalogErr != nil && d.app.checkUpstream(ctx) == nil {
		return demoCheck{name, checkToDownload, "upstream's releases, in a minute or two"}
	}

	source, err := findAssetSource("")
	if err == nil {
		_, err = exec.LookPath("go")
		if err != nil {
			err = errors.New("go is not in PATH: install Go 1.21 or later, which downloads the version that it needs")
		}
	}

	if err != nil && catalogErr == nil {
		return demoCheck{name, checkOK, catalog + " (it cannot be rebuilt here)"}
	}

	if err != nil {
		return demoCheck{name, checkMissing, err.Error()}
	}

	pending, err := build.Pending(ctx, build.Options{
		Source: source,
		Out:    assetsDir(cache),
		Env:    os.Environ(),
		Log:    d.app.Stderr,
		Clock:  d.app.Now,
	})

	switch {
	case err != nil:
		return demoCheck{name, checkMissing, err.Error()}
	case len(pending) > 0:
		return demoCheck{name, checkToBuild, strings.Join(pending, ", ") + ": up to 25 minutes on two cores"}
	}

	return demoCheck{name, checkOK, cmp.Or(catalog, assetsDir(cache))}
}

// checkRegion finds out whether the local region can run on this computer.
func checkRegion() demoCheck {
	if err := region.Preflight(); err != nil {
		return demoCheck{"local region", checkMissing, err.Error()}
	}

	return demoCheck{"local region", checkOK, "root, nftables, iproute2, e2fsprogs"}
}

// checkImage finds out whether the machine image is built, or can be.
func checkImage(cache string) demoCheck {
	const name = "machine image"
	path, err := region.FindImage(cache)
	if err == nil {
		return demoCheck{name, checkOK, path}
	}

	if err := region.CheckImageRequirements(); err != nil {
		return demoCheck{name, checkMissing, strings.ReplaceAll(err.Error(), "\n", "; ")}
	}

	return demoCheck{name, checkToBuild, "Debian 12, by debootstrap"}
}

// checkMemory compares the free memory with what five machines need.
func checkMemory() demoCheck {
	const name = "memory"
	free, err := readFreeMemory("/proc/meminfo")
	if err != nil {
		return demoCheck{name, checkMissing, err.Error()}
	}

	detail := fmt.Sprintf("%.1f GiB available, %.1f needed", float64(free)/1024, float64(demoMemoryMiB)/1024)
	if free < demoMemoryMiB {
		return demoCheck{name, checkMissing, detail}
	}

	return demoCheck{name, checkOK, detail}
}

// readFreeMemory returns the memory in MiB that programs can get without swapping.
func readFreeMemory(meminfo string) (int, error) {
	f, err := os.Open(meminfo)
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}

	defer func() { _ = f.Close() }() // opened for reading
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			return kib / 1024, nil
		}
	}

	return 0, fmt.Errorf("read the free memory: %s has no MemAvailable", meminfo)
}
