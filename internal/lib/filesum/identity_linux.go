// SPDX-License-Identifier: Apache-2.0

package filesum

import (
	"io/fs"
	"syscall"
)

func identityOf(info fs.FileInfo) (identity, bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}

	return identity{
		Device:  uint64(s.Dev),
		Inode:   s.Ino,
		Size:    s.Size,
		Changed: s.Ctim.Nano(),
	}, true //nolint:unconvert // Dev is another type on other architectures
}
