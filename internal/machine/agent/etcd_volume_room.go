// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

// volumeRoom makes room for new data on the volume of etcd. Data that was set aside because the cluster went on without it is
// deleted if it is in the way, the oldest first: the other members have had newer or better data for long. The newest data that was
// set aside is never deleted, and neither is that of before a restoration, which nobody else has.
type volumeRoom struct {
	agent *Agent
	// replaced are the directories that the new data replaces.
	replaced []string
	// isNewer is set if newer data is being set aside at this moment, so that none of before is the newest.
	isNewer bool
}

// volumeRoom returns what makes room for data that replaces these directories of the volume.
func (m *etcdMember) volumeRoom(replaced ...string) volumeRoom {
	return volumeRoom{agent: m.agent, replaced: replaced}
}

// settingAside returns r for a member whose present data is being set aside too.
func (r volumeRoom) settingAside() volumeRoom {
	r.isNewer = true

	return r
}

// spareDirs returns the directories with data that the cluster went on without.
func spareDirs() []string { return []string{corruptDir, copyDir, leftDir} }

// spareBytes returns the size of that data.
func spareBytes(root *HostFS) int64 {
	total := int64(0)
	for _, dir := range spareDirs() {
		total += treeBytes(root.Path(dir))
	}

	return total
}

// make deletes as much as check needs to return no error, which gets the free space that the new data has. If everything that may be
// deleted is not enough, nothing is deleted, and the result is the error of check.
func (r volumeRoom) make(check func(free int64) error) error {
	free, err := availableBytes(r.agent.Root)
	if err != nil {
		return err
	}

	for _, dir := range r.replaced {
		free += treeBytes(r.agent.Root.Path(dir))
	}

	if check(free) == nil {
		return nil
	}

	var doomed []string
	spare := r.listSpare()
	for check(free) != nil && len(spare) > 0 {
		free += treeBytes(r.agent.Root.Path(spare[0]))
		doomed = append(doomed, spare[0])
		spare = spare[1:]
	}

	if err := check(free); err != nil {
		return err
	}

	for _, dir := range doomed {
		r.agent.Log.Warn(
			"deleting etcd data that was set aside: the volume has no room for newer data",
			slog.String("directory", dir),
		)
		if err := os.RemoveAll(r.agent.Root.Path(dir)); err != nil {
			return fmt.Errorf("delete data that was set aside: %w", err)
		}
	}

	return nil
}

// listSpare returns the directories that may be deleted, the one with the oldest data first.
func (r volumeRoom) listSpare() []string {
	written := map[string]time.Time{}
	var dirs []string
	for _, dir := range append(spareDirs(), asideDir) {
		if at := lastWrite(r.agent.Root.Path(dir)); !at.IsZero() && !slices.Contains(r.replaced, dir) {
			written[dir] = at
			dirs = append(dirs, dir)
		}
	}

	slices.SortFunc(dirs, func(a, b string) int { return written[a].Compare(written[b]) })
	if !r.isNewer && len(dirs) > 0 {
		dirs = dirs[:len(dirs)-1]
	}

	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == asideDir })
}

// lastWrite returns when a file of a directory was last written; the zero time if there is none.
func lastWrite(dir string) time.Time {
	var last time.Time
	eachFile(dir, func(info fs.FileInfo) {
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	})

	return last
}
