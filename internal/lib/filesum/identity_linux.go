// SPDX-License-Identifier: Apache-2.0

package filesum

import (
	"io/fs"
	"syscall"
)

// identityOf returns the identity of a file from the result of stat.
func identityOf(info fs.FileInfo) (identity, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}

	return identity{
		Device:  uint64(s.Dev), //nolint:unconvert // Dev has another type on other architectures
		Inode:   s.Ino,
		Size:    s.Size,
		Changed: s.Ctim.Nano(),
	}, true
}
