// SPDX-License-Identifier: Apache-2.0

// Command slipway builds and runs Kubernetes clusters on AWS. It only hands the process to internal/cli, and knows
// no command.
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

// gcPercent lets the heap of a command grow before it is collected: a command lives for moments, and collecting took a
// tenth of its processor time. The local region lives on, and collects as usual.
const gcPercent = 800

func main() {
	if len(os.Args) > 1 && os.Args[1] == machine.SupervisorCommand {
		os.Exit(
			machine.Main(os.Args[2:], os.Stderr),
		) // the local region starts itself again as each machine's keeper
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
