// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces open: it sleeps, reaps orphans when it is the first process, and ends when told to.
// It does not know what else runs in the pod.
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
	// One thread and a small heap: a machine runs one pause for each pod.
	debug.SetGCPercent(10)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		// One SIGCHLD may stand for several dead children.
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
