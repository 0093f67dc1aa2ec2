// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// leastVersion is the first version of nftables that knows "socket cgroupv2", by which rules match control groups. Debian 11 has 0.9.8.
const leastVersion = "0.9.9"

// versionTimeout limits how long the program of the machine may take to print its version.
const versionTimeout = 10 * time.Second

// findOwn returns the path of the program of the machine, and whether it is new enough. One that does not run, or whose version is not
// known, is not used: the copy is.
func (p *Program) findOwn(ctx context.Context) (path string, isUsable bool) {
	path, err := p.Find(program)
	if err != nil {
		return "", false
	}

	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	output, err := p.Execute(ctx, path, "--version")
	if err == nil {
		err = checkVersion(output)
	}

	if err != nil {
		p.Log.Warn("not using the program nft of the machine", slog.String("path", path), slog.Any("error", err))
	}

	return path, err == nil
}

// checkVersion returns an error unless the output of nft --version is that of leastVersion or a later one. The fourth number of a
// version, such as that of 1.0.6.1, is that of a correction.
func checkVersion(output string) error {
	found := regexp.MustCompile(`nftables v([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindStringSubmatch(output)
	if found == nil {
		return fmt.Errorf("read its version: %q has no version of nftables", output)
	}

	if asset.CompareVersions(found[1], leastVersion) < 0 {
		return fmt.Errorf("its version is %s, and the packet filters need %s or later", found[1], leastVersion)
	}

	return nil
}
