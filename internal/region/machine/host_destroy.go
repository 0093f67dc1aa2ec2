// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Destroy stops all machines of this region, removes everything that belongs to them (processes,
// cgroups, loop devices, disks, volumes), and restores the host's kernel settings. It needs no
// state: it finds processes, cgroups, and devices by the region's directory and name.
func (h *Host) Destroy(ctx context.Context) error {
	if err := killSupervisors(ctx, h.instancesDir()); err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	groups, err := listHierarchies()
	if err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	ids, err := h.findMachineIDs(groups)
	if err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	var errs []error
	for _, id := range ids {
		errs = append(errs, h.Terminate(ctx, id))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	if err := removeCgroups(ctx, groups, filepath.Join(cgroupTop, h.cfg.Region)); err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	for _, g := range groups { // fails if another region uses it
		_ = unix.Rmdir(filepath.Join(g.Mount, cgroupTop))
	}

	if err := freeLoopDevices(ctx, h.volumesDir()); err != nil {
		return fmt.Errorf("destroy volumes: %w", err)
	}

	for _, dir := range []string{h.instancesDir(), h.volumesDir(), h.consolesDir()} {
		errs = append(errs, os.RemoveAll(dir))
	}

	if err := errors.Join(append(errs, restoreSysctls(h.cfg.Dir))...); err != nil {
		return fmt.Errorf("destroy machines: %w", err)
	}

	return nil
}

// findMachineIDs returns the ids of all machines with a directory or a cgroup.
func (h *Host) findMachineIDs(groups []cgroupHierarchy) ([]string, error) {
	dirs := []string{h.instancesDir()}
	for _, g := range groups {
		dirs = append(dirs, filepath.Join(g.Mount, cgroupTop, h.cfg.Region))
	}

	var ids []string

	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "i-*"))
		if err != nil {
			return nil, fmt.Errorf("list machines: %w", err)
		}

		for _, name := range names {
			ids = append(ids, strings.TrimSpace(filepath.Base(name)))
		}
	}

	slices.Sort(ids)

	return slices.Compact(ids), nil
}
