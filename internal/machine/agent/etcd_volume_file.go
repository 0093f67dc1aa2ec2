// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// copyDir has data that was written on another volume.
const copyDir = etcd.DataMount + "/copy"

// setAsideCopy moves data that was written on another volume away.
func (m *etcdMember) setAsideCopy(ctx context.Context) error {
	const why = "it was written on another volume"
	if err := m.stopForGood(ctx, why); err != nil {
		return err
	}

	return m.moveAside(copyDir, why)
}

// dataVolume returns the id of the volume that the member's data was written on; empty if it is not known, as for data of an
// earlier version of the agent.
func (m *etcdMember) dataVolume() (string, error) {
	body, err := m.agent.Root.Read(etcd.DataDir + "/" + etcd.VolumeFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}

	return strings.TrimSpace(string(body)), err
}

// recordVolume writes the id of the volume into the data directory, once. A volume that is made from a snapshot has the former id.
func (m *etcdMember) recordVolume() error {
	known, err := m.dataVolume()
	if err != nil || known != "" || m.volume == "" {
		return err
	}

	path := m.agent.Root.Path(etcd.DataDir + "/" + etcd.VolumeFile)
	out, err := createOwnFile(path + ".new") // etcd's user can write to the directory
	if err == nil {
		_, err = out.WriteString(m.volume + "\n")
		err = errors.Join(err, out.Close())
	}

	if err != nil {
		return fmt.Errorf("record the volume of etcd's data: %w", err)
	}

	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record the volume of etcd's data: %w", err)
	}

	return nil
}
