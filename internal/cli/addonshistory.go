// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

func newAddonsHistoryCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "history ADDON",
		Short: "List the versions of an add-on that it can be rolled back to",
		Long: `List the versions of an add-on that were applied to a cluster and became healthy, the newest one last. The cluster keeps the
objects of the last ten versions before the current one in Secrets of kube-system. A version whose objects have more than
1 MiB when compressed is listed, but cannot be rolled back to.` + exitStatusHelp(),
		Example: "  slipway addons history metrics-server --name demo\n  slipway addons history metrics-server --name demo -o json",
		Args:    requireOneArgument("ADDON"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.history(cmd.Context(), args[0])
		},
	}

	c.addFlags(cmd)
	addFormatFlag(cmd, &c.format)

	return cmd
}

// openOfFlag connects to the cluster of --name.
func (c *addonsCommand) openOfFlag(ctx context.Context) (*addons.Session, error) {
	name, err := clusterOfFlag(c.app, c.name)
	if err != nil {
		return nil, err
	}

	return c.open(ctx, []string{name})
}

// history lists the revisions of an add-on.
func (c *addonsCommand) history(ctx context.Context, addon string) error {
	session, err := c.openOfFlag(ctx)
	if err != nil {
		return err
	}

	revisions, err := session.Applier.History(ctx, addon)
	if err != nil {
		return err
	}

	if c.format != formatTable {
		if revisions == nil {
			revisions = []applier.Revision{}
		}

		return c.printValue(c.format, revisions)
	}

	if len(revisions) == 0 {
		c.printMessage("no version of add-on %s has been healthy since the cluster keeps versions", addon)
		return nil
	}

	var rows [][]string
	for _, r := range revisions {
		rows = append(rows, []string{
			strconv.Itoa(r.Number), r.Version, r.Channel, strconv.Itoa(r.Size), r.AppliedAt.Format(time.RFC3339), revisionNote(r),
		})
	}

	c.printTable([]string{"REVISION", "VERSION", "CHANNEL", "OBJECTS", "APPLIED", "NOTE"}, rows)

	return nil
}

// revisionNote returns what is special about a revision.
func revisionNote(r applier.Revision) string {
	note := ""

	switch {
	case r.Current:
		note = "current"
	case r.TooLarge:
		note = "too large to be kept"
	}

	if r.RollbackTo == 0 {
		return cmp.Or(note, "-")
	}

	if note != "" {
		note += ", "
	}

	return note + "rollback to " + strconv.Itoa(r.RollbackTo)
}

func newAddonsRollbackCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	var number int
	cmd := &cobra.Command{
		Use:   "rollback ADDON",
		Short: "Return an add-on to an earlier version",
		Long: `Return an add-on to the objects of an earlier version, which the cluster has kept: without --to-revision to the version before the
current one; if the last apply failed, to the last version that was healthy; if a rollback was interrupted, to the version that
it returned to. The command asks the API server for a dry run, shows each object that changes, applies them and waits until the
add-on is healthy. Objects that the earlier version did not have are deleted; namespaces, CustomResourceDefinitions and volumes
are kept. The data that a workload has written is not changed back.

The channel is not changed: the next apply of a channel with another version updates the add-on again.` + exitStatusHelp(),
		Example: "  slipway addons rollback metrics-server --name demo\n" +
			"  slipway addons rollback metrics-server --name demo --to-revision 3 --yes",
		Args: requireOneArgument("ADDON"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to-revision") && number < 1 {
				return withHint(fmt.Errorf("--to-revision %d is not a revision", number), "list them with: slipway addons history "+args[0])
			}

			return c.rollback(cmd.Context(), args[0], number)
		},
	}

	c.addFlags(cmd)
	cmd.Flags().IntVar(&number, "to-revision", 0, "the revision to return to (default: the one before the current one)")
	c.addForceFlag(cmd)
	c.addTimeoutFlag(cmd, "an add-on without a timeout of its own may take to become healthy")
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// rollback shows what a return to a revision changes and, once that is confirmed, applies it.
func (c *addonsCommand) rollback(ctx context.Context, addon string, number int) error {
	session, err := c.openOfFlag(ctx)
	if err != nil {
		return err
	}

	all, err := session.Applier.Inventories(ctx)
	if err != nil {
		return err
	}

	if err := session.CheckUnpublished(ctx, addons.ChannelsOf(all, []string{addon})...); err != nil {
		return err
	}

	plan, target, err := session.Applier.PlanRollback(ctx, addon, number)
	if err != nil {
		return err
	}

	switch {
	case c.format == formatTable && !plan.IsEmpty():
		c.printMessage("%s: from %s to revision %d, version %s", addon, cmp.Or(plan.Addons[0].Current, "-"), target.Number, target.Version)
		c.printSteps(plan)
	case c.format != formatTable && !c.yes:
		if err := c.printValue(c.format, plan); err != nil {
			return err
		}
	}

	if plan.IsEmpty() {
		c.printMessage("%s: cluster %s has all objects of revision %d; nothing changes", addon, c.name, target.Number)
		return nil
	}

	if err := c.confirm(fmt.Sprintf("Return add-on %s of cluster %s to version %s?", addon, c.name, target.Version)); err != nil {
		return err
	}

	results, err := session.Applier.Apply(ctx, plan)

	return c.printResults(results, plan, err)
}
