// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

func newAddonsDiffCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "diff [NAME] -f FILE",
		Short: "Show which objects an apply of a channel would change",
		Long: `Show each object that 'slipway addons apply' would create, update or delete in cluster NAME, with the values that an update
changes, also those that somebody has changed since the last apply. The API server computes them by a dry run. Values of Secrets
are hidden. Nothing is written.

EXIT STATUS
  0  no changes
  1  error
  2  changes`,
		Example: "  slipway addons diff demo -f channel.yaml\n  slipway addons diff demo -f channel.yaml -o json | jq '.addons[].steps'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.diff(cmd.Context(), args)
		},
	}

	c.addFlags(cmd)
	c.addFileFlag(cmd)
	c.addForceFlag(cmd)
	addFormatFlag(cmd, &c.format)

	return cmd
}

// diff prints the steps of the plan.
func (c *addonsCommand) diff(ctx context.Context, args []string) error {
	_, plan, err := c.plan(ctx, args)
	if err != nil {
		return err
	}

	if c.format != formatTable {
		if err := c.printValue(c.format, plan); err != nil {
			return err
		}
	} else {
		c.printSteps(plan)
	}

	if !plan.IsEmpty() || len(plan.Left) > 0 {
		return ExitError{exitChanges}
	}

	return nil
}

// printSteps prints what changes.
func (c *addonsCommand) printSteps(plan applier.Plan) {
	signs := map[applier.Action]string{
		applier.Create: "+",
		applier.Update: "~",
		applier.Delete: "-",
		applier.Keep:   "=",
	}

	for _, p := range plan.Addons {
		for _, s := range p.Steps {
			if s.Action == applier.Unchanged {
				continue
			}

			note := ""
			if s.Action == applier.Keep {
				note = ": no longer in the add-on, and kept"
			}

			if s.Unchecked {
				note = ": not tried, because its namespace or its kind is created first"
			}

			fmt.Fprintf(c.Stdout, "%s %s: %s%s\n", signs[s.Action], p.Name, s.Object, note)
			for _, d := range s.Differences {
				fmt.Fprintf(c.Stdout, "    %s %s → %s\n", d.Path, cmp.Or(d.Before, "-"), cmp.Or(d.After, "-"))
			}
		}
	}

	for _, i := range plan.Left {
		fmt.Fprintf(c.Stdout, "- %s: no longer in the channel; 'slipway addons prune' deletes it\n", i.Name)
	}

	if plan.IsEmpty() && len(plan.Left) == 0 {
		c.printMessage("cluster %s has all add-ons of the channel; nothing changes", c.name)
	}
}

func newAddonsPruneCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "prune [NAME] -f FILE",
		Short: "Delete the add-ons that a channel no longer has",
		Long: `Delete the add-ons of cluster NAME that were applied from a channel of this name and that the channel no longer has. It
applies nothing. Namespaces and CustomResourceDefinitions are kept unless --delete-namespaces-and-crds is given, and
PersistentVolumes and PersistentVolumeClaims unless --delete-volumes is given. An add-on that has no version for the cluster's
version of Kubernetes is not deleted.` + exitStatusHelp(),
		Example: "  slipway addons prune demo -f channel.yaml\n  slipway addons prune demo -f channel.yaml --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.prune(cmd.Context(), args)
		},
	}

	c.addFlags(cmd)
	c.addFileFlag(cmd)
	c.addProtectedFlags(cmd)
	c.addTimeoutFlag(cmd, "the deletion of an add-on may take")
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// prune deletes what the channel no longer has.
func (c *addonsCommand) prune(ctx context.Context, args []string) error {
	text, directory, err := c.readChannel()
	if err != nil {
		return err
	}

	session, err := c.open(ctx, args)
	if err != nil {
		return err
	}

	channel, err := session.Load(ctx, text, directory)
	if err != nil {
		return err
	}

	all, err := session.Applier.Inventories(ctx)
	if err != nil {
		return err
	}

	names := channel.Left(all, session.Applier)
	if len(names) == 0 {
		c.printMessage("cluster %s has no add-ons that the channel no longer has", c.name)
		return c.printDeletions(nil)
	}

	return c.delete(ctx, session, all, names)
}

func newAddonsDeleteCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "delete ADDON...",
		Short: "Delete add-ons of a cluster",
		Long: `Delete add-ons with all their objects, those first that depend on others. Namespaces and CustomResourceDefinitions are kept
unless --delete-namespaces-and-crds is given, because all objects in them and of them would be deleted, too. PersistentVolumes
and PersistentVolumeClaims are kept unless --delete-volumes is given, because their disks might be deleted, too. An add-on that
another one depends on is not deleted.` + exitStatusHelp(),
		Example: "  slipway addons delete metrics-server --name demo\n  slipway addons delete metrics-server --name demo --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			session, err := c.openOfFlag(cmd.Context())
			if err != nil {
				return err
			}

			all, err := session.Applier.Inventories(cmd.Context())
			if err != nil {
				return err
			}

			return c.delete(cmd.Context(), session, all, args)
		},
	}

	c.addFlags(cmd)
	c.addProtectedFlags(cmd)
	c.addTimeoutFlag(cmd, "the deletion of an add-on may take")
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// delete shows the deletions of add-ons and, once that is confirmed, carries them out.
func (c *addonsCommand) delete(
	ctx context.Context,
	session *addons.Session,
	all []applier.Inventory,
	names []string,
) error {
	if err := session.CheckUnpublished(ctx, addons.ChannelsOf(all, names)...); err != nil {
		return err
	}

	deletions, err := session.Applier.PlanDeletion(all, names)
	if err != nil {
		return err
	}

	if err := c.printDeletions(deletions); err != nil {
		return err
	}

	if err := c.confirm(fmt.Sprintf("Delete these objects from cluster %s?", c.name)); err != nil {
		return err
	}

	for _, d := range deletions {
		if err := session.Applier.Delete(ctx, d); err != nil {
			return err
		}

		c.printMessage("%s: deleted from cluster %s", d.Name, c.name)
	}

	return nil
}

// printDeletions prints what is deleted and what is kept.
func (c *addonsCommand) printDeletions(deletions []applier.Deletion) error {
	if c.format != formatTable {
		if deletions == nil {
			deletions = []applier.Deletion{}
		}

		return c.printValue(c.format, deletions)
	}

	var rows [][]string
	for _, d := range deletions {
		for _, s := range d.Steps {
			rows = append(rows, []string{d.Name, string(s.Action), s.Object.String()})
		}
	}

	if len(rows) > 0 {
		c.printTable([]string{"NAME", "ACTION", "OBJECT"}, rows)
	}

	return nil
}
