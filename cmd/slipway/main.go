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
)

// version is set by the linker (hack/build.sh, hack/packages) from the tags of the repository. Empty: the Go
// toolchain's own stamp is used.
var version string

// gcPercent is the GC target of commands. A command runs for a short time, and with the default
// target garbage collection used a tenth of its CPU time. The local region keeps the default, since
// its process runs for long.
const gcPercent = 800

func main() {
	if code, isSupervisor := runSupervisor(); isSupervisor {
		os.Exit(code)
	}

	if len(os.Args) > 1 && os.Args[1] != "region" {
		debug.SetGCPercent(gcPercent)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	code := cli.Main(ctx, cli.Env{
		Args:     os.Args[1:],
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Getenv:   os.Getenv,
		Environ:  os.Environ,
		Now:      time.Now,
		Hostname: os.Hostname,
		Version:  version,
	})

	stop()
	os.Exit(code)
}
