// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/slipway-k8s/slipway/internal/region/machine"
)

// runSupervisor runs the supervisor of a machine of the local region, for which the region starts this program
// again. It reports whether it was started for that, and the exit code.
func runSupervisor() (code int, isSupervisor bool) {
	if len(os.Args) < 2 || os.Args[1] != machine.SupervisorCommand {
		return 0, false
	}

	return machine.Main(os.Args[2:], os.Stderr), true
}
