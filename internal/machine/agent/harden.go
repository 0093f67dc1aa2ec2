// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// hardenProcess keeps the memory of this process, which holds the keys of the cluster, out of core dumps and away from
// debuggers of other users. Programs that the agent starts write no core dumps either.
func hardenProcess() error {
	var err error
	if limit := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); limit != nil {
		err = fmt.Errorf("forbid core dumps: %w", limit)
	}

	if dumpable := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); dumpable != nil {
		err = errors.Join(err, fmt.Errorf("forbid reading the memory of this process: %w", dumpable))
	}

	return err
}
