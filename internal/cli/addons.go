// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// addonsCommand works on the add-ons of a cluster.
type addonsCommand struct {
	*app

	name, file, format string
	options            addons.Options
	// channel is the name of the channel that was planned.
	channel string
}

func newAddonsCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"addons",
		"Apply, show and delete add-ons of a cluster",
		groupCluster,
		newAddonsGetCommand(a),
		newAddonsApplyCommand(a),
		newAddonsDiffCommand(a),
		newAddonsPruneCommand(a),
		newAddonsDeleteCommand(a),
		newAddonsHistoryCommand(a),
		newAddonsRollbackCommand(a),
		newAddonsRenderCommand(a),
		newAddonsPublishCommand(a),
		newAddonsUnpublishCommand(a),
		newAddonsChannelsCommand(a),
		newAddonsPutCommand(a),
		newAddonsSecretsCommand(a),
	)
}

// addFlags adds the flags of commands that reach the Kubernetes API.
func (c *addonsCommand) addFlags(cmd *cobra.Command) {
	addNameFlag(cmd, &c.name)
	cmd.Flags().StringVar(
		&c.options.Kubeconfig,
		"kubeconfig",
		"",
		"reach the API by the current context of this file (default: slipway issues itself a certificate)",
	)
}

// addFileFlag adds -f.
func (c *addonsCommand) addFileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.file, "filename", "f", "", "the channel, or - for stdin, with paths relative to this directory")
}

// addForceFlag adds --force-conflicts.
func (c *addonsCommand) addForceFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(
		&c.options.Force,
		"force-conflicts",
		false,
		"take over fields of other managers, and add-ons of other channels",
	)
}

// addTimeoutFlag adds --timeout.
func (c *addonsCommand) addTimeoutFlag(cmd *cobra.Command, what string) {
	cmd.Flags().DurationVar(&c.options.Timeout, "timeout", 0, "how long "+what+" (default 5m)")
}

// addProtectedFlags adds the flags that also delete what holds other objects, or data.
func (c *addonsCommand) addProtectedFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(
		&c.options.DeleteProtected,
		"delete-namespaces-and-crds",
		false,
		"also delete namespaces and CustomResourceDefinitions, with all objects in them and of them; "+
			"namespaces with volumes need --delete-volumes, too",
	)
	cmd.Flags().BoolVar(
		&c.options.DeleteVolumes,
		"delete-volumes",
		false,
		"also delete PersistentVolumes and PersistentVolumeClaims, and the disks that their reclaim policy deletes",
	)
}

// open connects to the cluster.
func (c *addonsCommand) open(ctx context.Context, args []string) (*addons.Session, error) {
	name, err := c.clusterName(args, c.name)
	if err != nil {
		return nil, err
	}

	c.name = name

	return addons.Open(ctx, c.newClusterEnv(), name, c.options)
}

// readChannel reads the file of -f, and returns the directory that its paths are relative to.
func (c *addonsCommand) readChannel() (text []byte, directory string, err error) {
	if c.file == "" {
		return nil, "", withHint(errors.New("no channel is given"), "give -f FILE, or -f - for stdin")
	}

	source := manifest.Source{File: c.file}
	directory = filepath.Dir(c.file)
	if c.file == "-" {
		source.File = "stdin"
		directory = "."
		source.Text, err = io.ReadAll(c.Stdin)
	} else {
		source.Text, err = os.ReadFile(c.file)
	}

	if err != nil {
		return nil, "", fmt.Errorf("read the channel: %w", err)
	}

	c.source = source

	return source.Text, directory, nil
}

// plan connects to the cluster and plans the channel of -f.
func (c *addonsCommand) plan(ctx context.Context, args []string) (*addons.Session, applier.Plan, error) {
	text, directory, err := c.readChannel()
	if err != nil {
		return nil, applier.Plan{}, err
	}

	session, err := c.open(ctx, args)
	if err != nil {
		return nil, applier.Plan{}, err
	}

	channel, err := session.Load(ctx, text, directory)
	if err != nil {
		return nil, applier.Plan{}, err
	}

	c.channel = channel.Name
	plan, err := session.Plan(ctx, channel)
	c.printUnfit(channel, session)

	return session, plan, err
}

func newAddonsGetCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List the add-ons that were applied to a cluster",
		Long: `List the add-ons of cluster NAME, from their inventories in the cluster. Those of channel slipway (CoreDNS, kube-proxy, flannel,
and rules of the API server) are applied by the control plane, the others by 'slipway addons apply'.` + exitStatusHelp(),
		Example: "  slipway addons get demo\n  slipway addons get demo -o json | jq '.[] | select(.state != \"Ready\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.get(cmd.Context(), args)
		},
	}

	c.addFlags(cmd)
	addFormatFlag(cmd, &c.format)

	return cmd
}

// get lists the add-ons of the cluster.
func (c *addonsCommand) get(ctx context.Context, args []string) error {
	session, err := c.open(ctx, args)
	if err != nil {
		return err
	}

	all, err := session.Applier.Inventories(ctx)
	if err != nil {
		return err
	}

	if c.format != formatTable {
		if all == nil {
			all = []applier.Inventory{}
		}

		return c.printValue(c.format, all)
	}

	if len(all) == 0 {
		c.printMessage("cluster %s has no add-ons yet", c.name)
		return nil
	}

	var rows [][]string
	for _, i := range all {
		rows = append(rows, dashIfEmpty([]string{
			i.Name, i.Version, i.Target, i.Channel, string(i.State), strconv.Itoa(len(i.Objects)), i.Message,
		}))
	}

	c.printTable([]string{"NAME", "VERSION", "TARGET", "CHANNEL", "STATE", "OBJECTS", "MESSAGE"}, rows)

	return nil
}

func newAddonsApplyCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	var prune bool
	cmd := &cobra.Command{
		Use:   "apply [NAME] -f FILE",
		Short: "Apply a channel of add-ons to a cluster",
		Long: `Apply the add-ons of a channel to cluster NAME. If the channel has several versions of an add-on, the highest one that is
for the cluster's version of Kubernetes is applied. The command first asks the API server for a dry run and prints a table:
the version in the cluster, the version that is applied, and the wave. Without a value in UPDATE nothing changes.

Add-ons are applied wave by wave: an add-on is in the wave after those of its dependsOn. The command waits until the
workloads of an add-on are healthy. An add-on that does not become healthy stops those that depend on it. Objects that an add-on
no longer has are deleted last; namespaces and CustomResourceDefinitions are kept. A command that was interrupted is rerun.

Objects of add-ons that the channel no longer has are deleted by --prune, or by 'slipway addons prune'.` + exitStatusHelp(),
		Example: "  slipway addons apply demo -f channel.yaml\n  slipway addons apply demo -f channel.yaml --yes --timeout 2m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.apply(cmd.Context(), args, prune)
		},
	}

	c.addFlags(cmd)
	c.addFileFlag(cmd)
	c.addForceFlag(cmd)
	c.addProtectedFlags(cmd)
	c.addTimeoutFlag(cmd, "an add-on without a timeout of its own may take to become healthy")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete the add-ons that the channel no longer has")
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// apply shows the plan and, once that is confirmed, applies it.
func (c *addonsCommand) apply(ctx context.Context, args []string, prune bool) error {
	session, plan, err := c.plan(ctx, args)
	if err != nil {
		return err
	}

	if err := session.CheckUnpublished(ctx, c.channel); err != nil {
		return err
	}

	deletions, err := c.leftDeletions(session, plan, prune)
	if err != nil {
		return err
	}

	if err := c.printPlan(plan, deletions); err != nil {
		return err
	}

	if plan.IsEmpty() && len(deletions) == 0 {
		c.printMessage("cluster %s has all add-ons of the channel; nothing changes", c.name)
		return nil
	}

	if err := c.confirm(fmt.Sprintf("Apply these add-ons to cluster %s?", c.name)); err != nil {
		return err
	}

	results, err := session.Applier.Apply(ctx, plan)
	for _, d := range deletions {
		if err == nil {
			err = session.Applier.Delete(ctx, d)
		}
	}

	return c.printResults(results, plan, err)
}

// leftDeletions returns the deletions of the add-ons that the channel no longer has.
func (c *addonsCommand) leftDeletions(
	session *addons.Session,
	plan applier.Plan,
	prune bool,
) ([]applier.Deletion, error) {
	if len(plan.Left) == 0 {
		return nil, nil
	}

	var names []string
	for _, i := range plan.Left {
		names = append(names, i.Name)
		if !prune {
			c.printMessage("add-on %s is no longer in the channel; delete it with: slipway addons prune", i.Name)
		}
	}

	if !prune {
		return nil, nil
	}

	all := plan.Left
	for _, p := range plan.Addons {
		all = append(all, p.Inventory())
	}

	return session.Applier.PlanDeletion(all, names)
}

// printPlan prints the table of a plan.
func (c *addonsCommand) printPlan(plan applier.Plan, deletions []applier.Deletion) error {
	if c.format != formatTable {
		if c.yes {
			return nil // the results are printed
		}

		return c.printValue(c.format, addonsPlan{Plan: plan, Deletions: deletions})
	}

	var rows [][]string
	for _, p := range plan.Addons {
		rows = append(rows, dashIfEmpty([]string{p.Name, p.Current, p.Update, strconv.Itoa(p.Wave)}))
	}

	for _, d := range deletions {
		rows = append(rows, []string{d.Name, cmp.Or(d.Version, "-"), "(delete)", "-"})
	}

	c.printTable([]string{"NAME", "CURRENT", "UPDATE", "WAVE"}, rows)

	return nil
}

// addonsPlan is a plan for -o json.
type addonsPlan struct {
	applier.Plan

	Deletions []applier.Deletion `json:"deletions,omitempty"`
}

// printResults prints how an apply ended.
func (c *addonsCommand) printResults(results []applier.Result, plan applier.Plan, err error) error {
	if c.format != formatTable {
		if printErr := c.printValue(c.format, results); printErr != nil {
			return firstError(err, printErr)
		}
	}

	for n, r := range results {
		if r.Outcome == applier.OutcomeApplied {
			c.printMessage("%s: %s is applied and healthy", r.Name, r.Version)
		}

		if machines := plan.Addons[n].NeedsRollingUpdate; machines != "" && r.Outcome == applier.OutcomeApplied {
			c.printMessage("%s: the update needs new machines (%s): slipway rolling-update cluster %s --force",
				r.Name, machines, c.name)
		}
	}

	return err
}

func newAddonsRenderCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "render [NAME] -f FILE",
		Short: "Print the objects of a channel of add-ons",
		Long: `Print the objects that 'slipway addons apply' would apply to cluster NAME, in the order in which it applies them: the version of
each add-on for the cluster's spec.kubernetesVersion, with the cluster's parameters and Slipway's labels. It needs the state
store, but no running cluster. An object without a namespace gets that of its add-on when it is applied.` + exitStatusHelp(),
		Example: "  slipway addons render demo -f channel.yaml\n  slipway addons render demo -f channel.yaml | kubectl diff -f -",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.render(cmd.Context(), args)
		},
	}

	addNameFlag(cmd, &c.name)
	c.addFileFlag(cmd)
	addFormatFlag(cmd, &c.format, formatYAML, formatJSON)

	return cmd
}

// render prints the objects of the channel.
func (c *addonsCommand) render(ctx context.Context, args []string) error {
	text, directory, err := c.readChannel()
	if err != nil {
		return err
	}

	session, err := c.openOffline(ctx, args)
	if err != nil {
		return err
	}

	channel, err := session.Load(ctx, text, directory)
	if err != nil {
		return err
	}

	var objects []any
	for _, r := range channel.Releases {
		for _, o := range r.Objects {
			objects = append(objects, o.Object)
		}
	}

	if c.format == formatJSON {
		return c.printValue(formatJSON, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}

	for _, o := range objects {
		out, err := encodeYAML(o)
		if err != nil {
			return err
		}

		fmt.Fprintf(c.Stdout, "---\n%s", out)
	}

	return nil
}
