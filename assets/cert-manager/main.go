// SPDX-License-Identifier: Apache-2.0

// Command cert-manager is one binary with the programs of cert-manager that a cluster needs: the controller, the webhook and the
// injector of certificate authorities. The first argument selects the program. Upstream's commands are modules of their own that
// module proxies do not serve; this one starts the same packages, with the same configuration files (--config), and has no other
// flags.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	logsapi "k8s.io/component-base/logs/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util/configfile"
	"github.com/cert-manager/cert-manager/pkg/util/feature"
)

// program is one of the programs.
type program struct {
	// file reads and has the configuration.
	file configfile.ConfigFile
	// common returns the parts of the configuration that all programs have.
	common func() (*logsapi.LoggingConfiguration, map[string]bool)
	// run returns when the context is done.
	run func(ctx context.Context) error
}

// programs maps the names of the programs to what makes them.
func programs() map[string]func() program {
	return map[string]func() program{
		"controller": newController,
		"webhook":    newWebhook,
		"cainjector": newInjector,
	}
}

func main() {
	known := programs()
	if len(os.Args) < 2 || known[os.Args[1]] == nil {
		names := slices.Sorted(maps.Keys(known))
		fmt.Fprintf(os.Stderr, "usage: cert-manager PROGRAM --config=FILE, with one of the programs %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	err := start(ctx, known[os.Args[1]](), os.Args[2:])
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cert-manager %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// start reads the configuration of a program and runs it.
func start(ctx context.Context, p program, args []string) error {
	flags := flag.NewFlagSet("cert-manager", flag.ExitOnError)
	path := flags.String("config", "", "the configuration file of the program")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	loader, err := configfile.NewConfigurationFSLoader(os.ReadFile, *path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}

	if err := loader.Load(p.file); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}

	logging, gates := p.common()
	if err := feature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}

	logs.InitLogs()
	if err := logs.ValidateAndApply(logging); err != nil {
		return fmt.Errorf("configure logging: %w", err)
	}

	ctrl.SetLogger(logs.Log)

	return p.run(logs.NewContext(ctx, logs.Log))
}
