// SPDX-License-Identifier: Apache-2.0

// Command slipway creates and operates Kubernetes clusters on AWS. It passes arguments, streams and
// environment of the process to internal/cli, which implements the commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/region/machine"
)

// gcPercent is the GC target of commands. A command runs for a short time, and with the default
// target garbage collection used a tenth of its CPU time. The local region keeps the default, since
// its process runs for long.
const gcPercent = 800

func main() {
	if len(os.Args) > 1 && os.Args[1] == machine.SupervisorCommand {
		// The local region starts this program again as the supervisor of each machine.
		os.Exit(machine.Main(os.Args[2:], os.Stderr))
	}

	if len(os.Args) > 1 && os.Args[1] != "region" {
		debug.SetGCPercent(gcPercent)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, cli.Env{
		Args:     os.Args[1:],
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Getenv:   os.Getenv,
		Now:      time.Now,
		Hostname: os.Hostname,
	})

	stop()
	os.Exit(code)
}
