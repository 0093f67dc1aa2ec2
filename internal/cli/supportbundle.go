// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/supportbundle"
	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// bundleOptions are the flags of 'slipway support-bundle'.
type bundleOptions struct {
	name, file string
	dryRun     bool
	scope      supportbundle.Scope
}

// maxBundleMachines is the default of --max-machines: at most about 100 MB of consoles and journals.
const maxBundleMachines = 50

func newSupportBundleCommand(a *app) *cobra.Command {
	var o bundleOptions
	cmd := &cobra.Command{
		Use:     "support-bundle [NAME]",
		Short:   "Collect facts about a cluster in one archive, without secrets",
		GroupID: groupCluster,
		Long: `Collect what is needed to find the cause of a problem in one .tar.gz: manifests, the history of operations, findings of
validate, consoles and journals of machines, reports of agents, the state of etcd and Kubernetes, logs of system pods, and facts
from AWS. index.html lists all of it. Nothing is changed, and SSH is not needed.

A source that fails is listed in the index with its error; the others are collected anyway. Private keys, tokens, credentials,
user data and settings that look like secrets are replaced by [redacted]; Secrets and ConfigMaps are never read. Look through the
archive before you give it away: only you know what your programs write into their logs.

--dry-run lists what would be collected. The file has mode 0600 and is not overwritten.` + exitStatusHelp(),
		Example: "  slipway support-bundle demo --dry-run\n  slipway support-bundle demo --since 2h --out demo.tar.gz",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return bundler{a}.runSupportBundle(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	flags := cmd.Flags()
	flags.StringVar(&o.file, "out", "", "archive to write (default: slipway-support-NAME-TIME.tar.gz)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "list what would be collected")
	flags.DurationVar(&o.scope.Since, "since", 24*time.Hour, "age of the oldest lines of journals and logs")
	flags.IntVar(
		&o.scope.MaxMachines,
		"max-machines",
		maxBundleMachines,
		"machines whose consoles and journals are collected; 0: all",
	)

	return cmd
}

// bundler writes support bundles.
type bundler struct{ *app }

// runSupportBundle collects and writes the archive, or lists what it would contain.
func (a bundler) runSupportBundle(ctx context.Context, name string, o bundleOptions) error {
	env := a.newClusterEnv()
	live, err := inventory.Open(ctx, env, name)
	if err != nil {
		return err
	}

	now := a.Now().UTC()
	file := cmp.Or(o.file, "slipway-support-"+name+"-"+now.Format("20060102T150405Z")+".tar.gz")
	if err := refuseExistingFile(file); err != nil && !o.dryRun {
		return err
	}

	collector := supportbundle.NewCollector(ctx, env, live, o.scope)
	sources, notes := collector.Sources(ctx)
	if o.dryRun {
		a.printSources(sources, notes)
		return nil
	}

	files := supportbundle.Collect(ctx, sources, a.printSource)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("collect the support bundle: %w", err)
	}

	header := supportbundle.Header{Cluster: name, CreatedAt: now, Tool: env.Tool, Notes: notes}
	body, err := supportbundle.Archive(header, files)
	if err != nil {
		return err
	}

	if err := privatefile.Write(file, body); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	failed := 0
	for _, f := range files {
		if f.Error != "" {
			failed++
		}
	}

	a.printMessage("%d of %d sources collected; begin with index.html", len(files)-failed, len(files))
	fmt.Fprintln(a.Stdout, file)

	return nil
}

// refuseExistingFile returns an error if the file exists.
func refuseExistingFile(file string) error {
	_, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	return withHint(fmt.Errorf("%s exists already", file), "remove it, or give another --out")
}

// printSources lists what a bundle would contain.
func (a bundler) printSources(sources []supportbundle.Source, notes []string) {
	var rows [][]string
	for _, s := range sources {
		rows = append(rows, []string{s.Path, s.Title})
	}

	a.printTable([]string{"FILE", "CONTENT"}, rows)
	for _, note := range notes {
		a.printMessage("%s", note)
	}
}

// printSource prints a source that could not be read.
func (a bundler) printSource(f supportbundle.File) {
	if f.Error != "" {
		printLabelledMessage(a.app, yellow, "not collected:", f.Path+": "+f.Error)
	}
}
