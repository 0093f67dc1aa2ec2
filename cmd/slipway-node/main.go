// SPDX-License-Identifier: Apache-2.0

// Command slipway-node is the agent on every machine. It configures the machine as its node
// document describes, and knows only its own machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/agent"
)

func main() {
	if err := runAgent(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "slipway-node:", err)
		os.Exit(1)
	}
}

func runAgent() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return agent.Main(ctx, os.Args[1:], agent.Env{
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Getenv:  os.Getenv,
		Now:     time.Now,
		Console: "/dev/console",
	})
}
