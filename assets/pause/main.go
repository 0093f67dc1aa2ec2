// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's namespaces open. It sleeps, reaps orphaned processes if it is PID 1,
// and exits on SIGINT or SIGTERM. It does not know the pod's other processes.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "-v" || os.Args[1] == "--version") {
		fmt.Println("pause (slipway)")
		return
	}

	// A small heap, because a machine runs one pause per pod.
	debug.SetGCPercent(10)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}

		// One SIGCHLD may be delivered for several exited children.
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
