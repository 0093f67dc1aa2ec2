// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// growthInterval is the pause between two looks at the size of the etcd volume.
const growthInterval = 15 * time.Second

// sectorBytes is the unit of sizes in /sys/dev/block: 512 bytes, whatever the device uses (Documentation/ABI/stable/sysfs-block of Linux).
const sectorBytes = 512

// volumeGrowth lets the file system of the etcd volume grow when the volume has grown: EC2 changes only the device.
type volumeGrowth struct {
	agent *Agent
	// device and sectors are the mount's source and the size for which the file system was grown.
	device  string
	sectors int64
}

// run grows the file system once after the agent has started, and whenever the device has another size. A file system that has the
// size of its device is left alone by resize2fs. etcd goes on meanwhile.
func (g *volumeGrowth) run(ctx context.Context) error {
	a := g.agent
	mount, err := readVolumeMount(a.Root)
	if err != nil || !mount.mounted || mount.readOnly {
		return err
	}

	body, err := a.Root.Read("/sys/dev/block/" + mount.device + "/size")
	if err != nil {
		return fmt.Errorf("read the size of the etcd volume: %w", err)
	}

	sectors, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil {
		return fmt.Errorf("read the size of the etcd volume: %w", err)
	}

	if mount.source == g.device && sectors == g.sectors {
		return nil
	}

	if _, err := a.Run.Run(ctx, "resize2fs", mount.source); err != nil {
		return fmt.Errorf("grow the file system of the etcd volume %s to %d MiB: %w", mount.source, sectors*sectorBytes>>20, err)
	}

	if g.device != "" {
		a.Log.Info("the etcd volume has another size: its file system has grown",
			slog.String("device", mount.source), slog.Int64("mebibytes", sectors*sectorBytes>>20))
	}

	g.device = mount.source
	g.sectors = sectors

	return nil
}
