// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/addons"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

func newAddonsPublishCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	var mode string
	var prune bool
	cmd := &cobra.Command{
		Use:   "publish [NAME] -f FILE",
		Short: "Have the control plane keep a channel of add-ons applied",
		Long: `Publish a channel of add-ons to the machines of cluster NAME: the versions for the cluster's spec.kubernetesVersion, with all
their objects, as 'slipway addons render' prints them. They are encrypted in the store that machines read. One elected machine
of the control plane reads them within a minute, applies them, and compares the cluster with them every minute. The command
needs no running cluster.

With --mode Correct it applies the channel again whenever the cluster differs. Fields that another manager owns are not taken over:
'slipway addons channels' reports them. With --mode Report it changes nothing and reports what differs; 'slipway addons apply'
then applies the channel.

A channel with spec.source has no add-ons: the control plane reads them from there, an OCI artifact or a Git repository, and follows
new revisions, which it verifies with spec.source.publicKeys.

A channel of the same name is replaced. Publish again after an upgrade of Kubernetes if the channel has other versions for it.` + exitStatusHelp(),
		Example: "  slipway addons publish demo -f channel.yaml\n  slipway addons publish demo -f channel.yaml --prune --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			parsed, err := published.ParseMode(mode)
			if err != nil {
				return withHint(err, "give --mode Correct or --mode Report")
			}

			return c.publish(cmd.Context(), args, addons.PublishOptions{Mode: parsed, Prune: prune})
		},
	}

	addNameFlag(cmd, &c.name)
	c.addFileFlag(cmd)
	cmd.Flags().StringVar(&mode, "mode", string(published.Correct), "what is done with differences: Correct or Report")
	cmd.Flags().BoolVar(&prune, "prune", false, "also delete the add-ons that the channel no longer has")
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// publish shows what a publication changes and, once that is confirmed, makes it.
func (c *addonsCommand) publish(ctx context.Context, args []string, o addons.PublishOptions) error {
	text, directory, err := c.readChannel()
	if err != nil {
		return err
	}

	session, err := c.openOffline(ctx, args)
	if err != nil {
		return err
	}

	channel, err := session.LoadForPublication(ctx, text, directory)
	if err != nil {
		return err
	}

	c.printUnfit(channel, session)
	publication, err := session.NewPublication(ctx, c.newClusterEnv())
	if err != nil {
		return err
	}

	if err := publication.Publish(channel, o); err != nil {
		return err
	}

	if err := c.printPublication(publication); err != nil {
		return err
	}

	if !publication.IsChange() {
		c.printMessage("channel %s of cluster %s is published already; nothing changes", channel.Name, c.name)
		return nil
	}

	if err := c.confirm(fmt.Sprintf("Publish channel %s to the machines of cluster %s?", channel.Name, c.name)); err != nil {
		return err
	}

	if err := publication.Write(ctx); err != nil {
		return err
	}

	if channel.Source != nil && !channel.Source.IsFixed() {
		c.printMessage("warning: no publicKeys: whoever can write to %s can change the cluster", channel.Source)
	}

	c.printMessage("channel %s of cluster %s is published with serial %d; see how far it is with: slipway addons channels %s",
		channel.Name, c.name, publication.Serial(), c.name)

	return nil
}

// openOffline reads the manifest of the cluster.
func (c *addonsCommand) openOffline(ctx context.Context, args []string) (*addons.Session, error) {
	name, err := c.clusterName(args, c.name)
	if err != nil {
		return nil, err
	}

	c.name = name

	return addons.OpenOffline(ctx, c.newClusterEnv(), name)
}

// printPublication prints what a publication changes.
func (c *addonsCommand) printPublication(p *addons.Publication) error {
	if c.format != formatTable {
		return c.printValue(c.format, p.Changes)
	}

	if p.Source != "" {
		c.printMessage("the control plane follows %s", p.Source)
		return nil
	}

	var rows [][]string
	for _, change := range p.Changes {
		update := change.Update
		wave := strconv.Itoa(change.Wave)
		if change.Wave == 0 {
			update = "(leaves)"
			wave = ""
		}

		rows = append(rows, dashIfEmpty([]string{change.Name, change.Current, update, wave}))
	}

	c.printTable([]string{"NAME", "PUBLISHED", "UPDATE", "WAVE"}, rows)

	return nil
}

func newAddonsUnpublishCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "unpublish CHANNEL",
		Short: "Stop the control plane from applying a published channel",
		Long: `Withdraw a channel that 'slipway addons publish' has published. The control plane no longer applies it. Its add-ons stay in the
cluster, and 'slipway addons' can change and delete them again.` + exitStatusHelp(),
		Example: "  slipway addons unpublish base --name demo\n  slipway addons unpublish base --name demo --yes",
		Args:    requireOneArgument("CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.unpublish(cmd.Context(), args[0])
		},
	}

	addNameFlag(cmd, &c.name)
	addFormatFlag(cmd, &c.format)
	a.addYesFlag(cmd)

	return cmd
}

// unpublish withdraws a channel, once that is confirmed.
func (c *addonsCommand) unpublish(ctx context.Context, channel string) error {
	session, err := c.openOfflineOfFlag(ctx)
	if err != nil {
		return err
	}

	publication, err := session.NewPublication(ctx, c.newClusterEnv())
	if err != nil {
		return err
	}

	if err := publication.Withdraw(channel); err != nil {
		return err
	}

	if err := c.printPublication(publication); err != nil {
		return err
	}

	if err := c.confirm(fmt.Sprintf("Stop applying channel %s in cluster %s?", channel, c.name)); err != nil {
		return err
	}

	if err := publication.Write(ctx); err != nil {
		return err
	}

	c.printMessage("channel %s of cluster %s is no longer published; its add-ons stay in the cluster", channel, c.name)

	return nil
}

func newAddonsChannelsCommand(a *app) *cobra.Command {
	c := &addonsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "channels [NAME]",
		Short: "Show what the control plane did with published channels",
		Long: `Show the published channels of cluster NAME as the control plane has read them, and what it did with each: Applied, Applying while
an add-on is not healthy, Drifted if the cluster differs from a channel of mode Report, Pending while the source of a channel was not
read yet, or Failed. A channel that was just published is read within a minute.

For a channel that is followed, it also shows the revision that is applied, when it was accepted, and when the source was last read
without an error. The message says why a newer revision is refused, and when a source has gone back to an older one.` + exitStatusHelp(),
		Example: "  slipway addons channels demo\n  slipway addons channels demo -o json | jq '.[] | select(.state != \"Applied\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.channels(cmd.Context(), args)
		},
	}

	c.addFlags(cmd)
	addFormatFlag(cmd, &c.format)

	return cmd
}

// channels lists the status of the published channels.
func (c *addonsCommand) channels(ctx context.Context, args []string) error {
	session, err := c.open(ctx, args)
	if err != nil {
		return err
	}

	all, err := session.Channels(ctx)
	if err != nil {
		return err
	}

	if c.format != formatTable {
		if all == nil {
			all = []addons.ChannelStatus{}
		}

		return c.printValue(c.format, all)
	}

	if len(all) == 0 {
		c.printMessage("the control plane of cluster %s has read no published channels", c.name)
		return nil
	}

	c.printChannels(all)

	return nil
}

// printChannels prints the status of channels, and the revisions of those that are followed.
func (c *addonsCommand) printChannels(all []addons.ChannelStatus) {
	header := []string{"CHANNEL", "MODE", "SERIAL", "STATE", "DIFFERENCES"}
	isFollowed := slices.ContainsFunc(all, func(s addons.ChannelStatus) bool { return s.Source != nil })
	if isFollowed {
		header = append(header, "REVISION", "ACCEPTED", "CHECKED")
	}

	var rows [][]string
	for _, s := range all {
		row := []string{s.Channel, string(s.Mode), strconv.FormatInt(s.Serial, 10), string(s.State), strconv.Itoa(s.Differences)}
		if isFollowed {
			row = append(row, describeSourceRevision(s.Source)...)
		}

		rows = append(rows, dashIfEmpty(append(row, s.Message)))
	}

	c.printTable(append(header, "MESSAGE"), rows)
}

// describeSourceRevision returns the revision of a source, shortened, and when it was accepted and last seen.
func describeSourceRevision(s *published.SourceStatus) []string {
	const shown = 12
	if s == nil {
		return []string{"", "", ""}
	}

	revision := strings.TrimPrefix(s.Revision, "sha256:")

	return []string{revision[:min(len(revision), shown)], formatTime(s.AcceptedAt), formatTime(s.CheckedAt)}
}

// formatTime returns a time as it is printed; empty for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return t.UTC().Format(time.RFC3339)
}

// printUnfit reports the add-ons that the cluster cannot have.
func (c *addonsCommand) printUnfit(channel addons.Channel, session *addons.Session) {
	for _, name := range channel.Unfit {
		c.printMessage("add-on %s: no version of the channel is for Kubernetes %s", name, session.Kubernetes)
	}
}
