// SPDX-License-Identifier: Apache-2.0

// Package privatefile writes files that only their owner may read, such as kubeconfigs and saved plans.
package privatefile

import (
	"cmp"
	"os"
	"path/filepath"
)

// Write replaces a file in one step, with mode 0600. A symbolic link stays a link: the file it points to is
// replaced.
func Write(file string, text []byte) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // a link stays a link
	}

	temp, err := os.CreateTemp(filepath.Dir(file), ".slipway-*") // has mode 0600
	if err != nil {
		return err
	}

	defer func() { _ = os.Remove(temp.Name()) }() // it is gone after a success
	_, err = temp.Write(text)
	if err := cmp.Or(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}

	return os.Rename(temp.Name(), file)
}
