// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/region"
)

func newRegionCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"region",
		"Run an AWS region on this machine",
		groupLocal,
		newRegionStartCommand(
			a,
		),
		newRegionStopCommand(a),
		newRegionStatusCommand(a),
		newRegionDestroyCommand(a),
		newRegionEnvCommand(a),
		newRegionImageCommand(a),
		newRegionFaultsCommand(a),
		newRegionConnectCommand(a),
		newRegionServeCommand(a),
	)
}

func newRegionStartCommand(a *app) *cobra.Command {
	var port int
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the local region, unless it runs already",
		Long: `Start the local AWS region: EC2, Auto Scaling, load balancing, IAM, STS, KMS, S3 and SSM on 127.0.0.1, with real
machines in namespaces of this computer. It runs in the background until 'slipway region stop'. Its machines, volumes
and buckets are kept until 'slipway region destroy'. Needs root. The first start builds the machine image.

Machines share this computer's memory and disk. Their kubelets therefore ignore evictionHard and the thresholds of image garbage
collection of the manifests (/etc/kubernetes/kubelet.conf.d/10-region.conf on each machine). docs/region.md lists all differences
from AWS.

As in AWS, calls do not see for a moment what is new: --visibility-delay is for how long, and 0s is for programs that
create something and read it in one breath. The region keeps it until it is stopped and started with another one.` + exitStatusHelp(),
		Example: "  slipway region start\n  eval \"$(slipway region env)\"\n  aws ec2 describe-instances",
		Args:    requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := region.Options{Port: port}
			if cmd.Flags().Changed("visibility-delay") {
				o.VisibilityDelay = &delay
			}

			return a.regionStart(cmd.Context(), o)
		},
	}

	cmd.Flags().IntVar(&port, "port", 0, fmt.Sprintf("port on 127.0.0.1 (default %d)", region.DefaultPort))
	cmd.Flags().DurationVar(
		&delay,
		"visibility-delay",
		region.DefaultVisibilityDelay,
		"how long what is new is not seen, up to 10s",
	)

	return cmd
}

// regionStart builds the machine image if needed and starts the region if it does not run.
func (a *app) regionStart(ctx context.Context, o region.Options) error {
	cache, err := a.cacheDir()
	if err != nil {
		return err
	}

	if err := region.Preflight(); err != nil {
		return err
	}

	if err := a.regionImage(ctx, cache, ""); err != nil {
		return err
	}

	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find slipway's own program: %w", err)
	}

	o.CacheDir = cache
	o.Region = a.region
	st, err := region.Start(
		ctx,
		o,
		[]string{self, "region", "serve", "--cache", cache},
	)
	if err != nil {
		return err
	}

	a.printMessage("region %s runs at %s (process %d, folder %s)", st.Region, st.Endpoint, st.PID, st.Folder)

	return nil
}

func newRegionStopCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "Stop the local region's process; keep machines and data",
		Long:    `Stop the local region's process. Machines keep running and all data is kept; 'slipway region start' resumes.` + exitStatusHelp(),
		Example: "  slipway region stop",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			if err := region.Stop(ctx, cache); err != nil {
				return err
			}

			a.printMessage("the region's process is stopped")
			return nil
		}),
	}
}

func newRegionStatusCommand(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show whether the local region runs, and its endpoint",
		Long:    "Show whether the local region exists and runs, and its endpoint." + exitStatusHelp(),
		Example: "  slipway region status\n  slipway region status -o json",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(_ context.Context, cache string) error {
			st, err := region.GetStatus(cache)
			if err != nil {
				return err
			}

			if format != formatTable {
				return a.printValue(format, st)
			}

			state := "there is none"

			switch {
			case st.Running:
				state = "running"
			case st.Exists:
				state = "stopped"
			}

			a.printTable(
				[]string{"STATE", "REGION", "ENDPOINT", "PROCESS", "FOLDER"},
				[][]string{
					{state, orDash(st.Region), orDash(st.Endpoint), orDash(formatPID(st.PID)), st.Folder},
				},
			)

			return nil
		}),
	}

	addFormatFlag(cmd, &format)

	return cmd
}

func formatPID(n int) string {
	if n == 0 {
		return ""
	}

	return strconv.Itoa(n)
}

func newRegionDestroyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "Remove the local region with all its machines and data",
		Long: `Remove the local region: its process, machines, volumes, buckets, keys, namespaces, mounts and cgroups. It works in
any state of the region, also after its process was killed. The built image and assets are kept.` + exitStatusHelp(),
		Example: "  slipway region destroy --yes",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			a.printMessage(
				"the local region in %s, with all its machines and data",
				filepath.Join(cache, "region"),
			)
			if err := a.confirm("It will be destroyed."); err != nil {
				return err
			}

			if err := region.Destroy(ctx, cache); err != nil {
				return err
			}

			// The region had the demo's cluster. Other kubeconfigs belong to the caller.
			if err := os.Remove(demoKubeconfig(cache)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}

			a.printMessage("the local region was removed")

			return nil
		}),
	}

	a.addYesFlag(cmd)
	return cmd
}

func newRegionEnvCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "env",
		Short:   "Print shell exports that point AWS clients at the local region",
		Long:    "Print shell exports that point AWS clients, and slipway itself, at the local region." + exitStatusHelp(),
		Example: "  eval \"$(slipway region env)\"",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(_ context.Context, cache string) error {
			st, err := region.GetStatus(cache)
			if err != nil {
				return err
			}

			if !st.Exists {
				return withHint(errors.New("no local region exists"), "slipway region start")
			}

			exports := st.Settings.Env(cache)
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find slipway's own path: %w", err)
			}

			proxy := strings.ReplaceAll(shellQuote(self), "%", "%%") + " region connect %h %p" // % begins a token of ssh
			exports = append(exports, [2]string{"SLIPWAY_SSH_PROXY", proxy})
			for _, kv := range exports {
				fmt.Fprintf(a.Stdout, "export %s=%s\n", kv[0], shellQuote(kv[1]))
			}

			return nil
		}),
	}
}

func newRegionImageCommand(a *app) *cobra.Command {
	var distribution string
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build an image that the local region's machines boot from",
		Long: `Build a machine image of the local region, a root file system, unless the cache has it already: Debian 12, which
'slipway region start' builds too, or another distribution with --os. Needs root.` + exitStatusHelp(),
		Example: "  slipway region image\n  slipway region image --os ubuntu-24.04",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			return a.regionImage(ctx, cache, distribution)
		}),
	}

	names := region.Distributions()
	cmd.Flags().StringVar(&distribution, "os", names[0], "the distribution: "+strings.Join(names, " or "))

	return cmd
}

func (a *app) regionImage(ctx context.Context, cache, distribution string) error {
	return region.EnsureImage(ctx, cache, distribution, func(line string) { a.printMessage("%s", line) })
}

// newRegionServeCommand returns the command that 'region start' runs in the background.
func newRegionServeCommand(a *app) *cobra.Command {
	var cache string
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the local region in the foreground",
		Long:    "Run the local region in the foreground, until SIGTERM or SIGINT. 'slipway region start' does this in the background." + exitStatusHelp(),
		Example: "  slipway region serve --cache ~/.cache/slipway",
		Hidden:  true,
		Args:    requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return region.Serve(ctx, region.ServeOptions{
				CacheDir: cache,
				Registry: build.RegistryHandler(filepath.Join(cache, "assets")),
				Now:      a.Now,
				Log:      a.Stderr,
			})
		},
	}

	cmd.Flags().StringVar(&cache, "cache", "", "the cache directory")

	return cmd
}
