// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"sync"
)

// lockedWriter is a writer that several goroutines use: progress lines and messages are printed at the same time. Each
// Write is passed on as a whole.
type lockedWriter struct {
	lock *sync.Mutex
	w    io.Writer
}

// Write implements [io.Writer].
func (l lockedWriter) Write(p []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()

	return l.w.Write(p)
}
