// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/etcdadmin"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

func newEtcdCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"etcd",
		"Show etcd, take and restore backups, defragment",
		groupCluster,
		newEtcdStatusCommand(a),
		newEtcdMembersCommand(a),
		newEtcdSnapshotsCommand(a),
		newEtcdSnapshotCommand(a),
		newEtcdRestoreCommand(a),
		newEtcdMoveCommand(a),
		newEtcdDefragCommand(a),
	)
}

// etcdCommand works on the etcd of a cluster.
type etcdCommand struct{ *app }

// open opens the etcd of the cluster that the arguments name.
func (a etcdCommand) open(ctx context.Context, args []string, name string) (*etcdadmin.Admin, string, error) {
	name, err := a.clusterName(args, name)
	if err != nil {
		return nil, "", err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return nil, "", err
	}

	admin, err := etcdadmin.Open(ctx, env, name)

	return admin, name, err
}

func newEtcdStatusCommand(a *app) *cobra.Command {
	var name, format string
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show whether etcd works, its members and its newest backups",
		Long: `Show the etcd members as their machines report them, with the size of their databases, raised alarms and problems, and the
newest backup and the newest one that was restored as a test. Without the Kubernetes API, the members are as the machines'
consoles say.` + exitStatusHelp("2  etcd has no quorum"),
		Example: "  slipway etcd status demo\n  slipway etcd status demo -o json | jq .newestBackup.takenAt",
		RunE: func(cmd *cobra.Command, args []string) error {
			return etcdCommand{a}.showStatus(cmd.Context(), args, name, format)
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)

	return cmd
}

// showStatus prints the status of etcd.
func (a etcdCommand) showStatus(ctx context.Context, args []string, name, format string) error {
	admin, name, err := a.open(ctx, args, name)
	if err != nil {
		return err
	}

	status, err := admin.Status(ctx)
	if err != nil {
		return err
	}

	if err := a.printStatus(name, format, status); err != nil {
		return err
	}

	if !status.Quorum {
		return ExitError{Code: exitUnhealthy}
	}

	return nil
}

// printStatus prints a status. What is not data is a message.
func (a etcdCommand) printStatus(name, format string, status etcdadmin.Status) error {
	if format != formatTable {
		return a.printValue(format, status)
	}

	var rows [][]string
	for _, m := range status.Members {
		rows = append(rows, dashIfEmpty([]string{
			m.Name,
			m.Role,
			strconv.FormatBool(m.Healthy),
			m.Version,
			formatBytes(m.DBSize),
			formatBytes(m.Quota),
			formatNumber(m.RaftIndex),
			strings.Join(m.Alarms, ","),
			m.Machine,
			m.Problem,
		}))
	}

	a.printTable([]string{
		"MEMBER", "ROLE", "HEALTHY", "VERSION", "DB SIZE", "QUOTA", "RAFT INDEX", "ALARMS", "MACHINE", "PROBLEM",
	}, rows)

	if status.APIError != "" {
		a.printMessage("the Kubernetes API %s", status.APIError)
	}

	a.printMessage("newest backup: %s", a.describeBackup(status.Newest))
	a.printMessage("newest tested backup: %s", a.describeBackup(status.Tested))
	a.warnOfUnreadable(status.Unreadable)
	if status.Recovery != "" {
		a.printMessage("recovery: %s", status.Recovery)
	}

	if !status.Quorum {
		a.printMessage("etcd of cluster %s has no quorum: nothing can be written", name)
	}

	return nil
}

// warnOfUnreadable names the backups that cannot be read.
func (a etcdCommand) warnOfUnreadable(backups []backup.Unreadable) {
	for _, b := range backups {
		a.printMessage("warning: backup %s is not used: %s", b.ID, b.Reason)
	}
}

// describeBackup describes a backup in one line.
func (a etcdCommand) describeBackup(b *backup.Backup) string {
	if b == nil {
		return "none"
	}

	text := fmt.Sprintf("%s, %s old, revision %d, %s", b.ID, formatAge(b.TakenAt, a.Now()), b.Revision, formatBytes(b.DBSize))
	if b.Verification != nil {
		text += ", " + describeVerification(b.Verification)
	}

	return text
}

// describeVerification describes the result of a test.
func describeVerification(v *backup.Verification) string {
	switch {
	case v == nil:
		return "not tested"
	case v.OK && v.HashCompared:
		return "restored in a test"
	case v.OK:
		return "restored in a test, contents not compared"
	case v.Inconclusive:
		return "could not be tested: " + v.Error
	default:
		return "FAILED: " + v.Error
	}
}

func newEtcdMembersCommand(a *app) *cobra.Command {
	var name, format string
	cmd := &cobra.Command{
		Use:     "members [NAME]",
		Aliases: []string{"member"},
		Short:   "List the members of etcd",
		Long:    "List the member of each control-plane slot with its id, its role and its machine, as the machine reports it." + exitStatusHelp(),
		Example: "  slipway etcd members demo\n  slipway etcd members demo -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			admin, _, err := etcdCommand{a}.open(cmd.Context(), args, name)
			if err != nil {
				return err
			}

			status, err := admin.Status(cmd.Context())
			if err != nil {
				return err
			}

			if format != formatTable {
				return a.printValue(format, status.Members)
			}

			var rows [][]string
			for _, m := range status.Members {
				rows = append(rows, dashIfEmpty([]string{
					m.MemberID, m.Name, m.Role, strconv.FormatBool(m.Healthy), m.Machine, formatAge(m.ReportedAt, a.Now()),
				}))
			}

			a.printTable([]string{"ID", "NAME", "ROLE", "HEALTHY", "MACHINE", "REPORTED"}, rows)

			return nil
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)

	return cmd
}

func newEtcdSnapshotsCommand(a *app) *cobra.Command {
	var name, format string
	cmd := &cobra.Command{
		Use:     "snapshots [NAME]",
		Aliases: []string{"backups"},
		Short:   "List the backups of etcd",
		Long: `List the backups of etcd in the machine store, the oldest first, with what they contain and the result of their test.
Reading them needs access to the store only: the cluster need not run.` + exitStatusHelp(),
		Example: "  slipway etcd snapshots demo\n  slipway etcd snapshots demo -o json | jq '.[-1]'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return etcdCommand{a}.listBackups(cmd.Context(), args, name, format)
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)

	return cmd
}

// listBackups prints the backups.
func (a etcdCommand) listBackups(ctx context.Context, args []string, name, format string) error {
	admin, name, err := a.open(ctx, args, name)
	if err != nil {
		return err
	}

	listing, err := admin.Backups(ctx)
	if err != nil {
		return err
	}

	a.warnOfUnreadable(listing.Unreadable)
	backups := listing.Backups
	if format != formatTable {
		if backups == nil {
			backups = []backup.Backup{}
		}

		return a.printValue(format, backups)
	}

	if len(backups) == 0 {
		a.printMessage("cluster %s has no backup of etcd", name)
		return nil
	}

	var rows [][]string
	for _, b := range backups {
		rows = append(rows, []string{
			b.ID,
			formatAge(b.TakenAt, a.Now()),
			b.Reason,
			strconv.FormatInt(b.Revision, 10),
			strconv.Itoa(b.Keys),
			formatBytes(b.DBSize),
			b.EtcdVersion,
			b.Member,
			describeVerification(b.Verification),
		})
	}

	a.printTable([]string{"ID", "AGE", "REASON", "REVISION", "KEYS", "SIZE", "ETCD", "MEMBER", "TEST"}, rows)

	return nil
}

func newEtcdSnapshotCommand(a *app) *cobra.Command {
	var name, format string
	var request etcdadmin.Request
	cmd := &cobra.Command{
		Use:   "snapshot [NAME]",
		Short: "Take a backup of etcd now",
		Long: `Ask the machine of etcd's leader for a backup and wait until it is stored. The backup is encrypted with the key of the state store
and kept as long as the last backup of a day (spec.etcd.backup.keepDaily). It prints the id.

The command takes the cluster's lock, so that the machines have one request at a time.` + exitStatusHelp(),
		Example: "  slipway etcd snapshot demo\n  slipway etcd snapshot demo -o json | jq -r .id",
		RunE: func(cmd *cobra.Command, args []string) error {
			admin, name, err := etcdCommand{a}.open(cmd.Context(), args, name)
			if err != nil {
				return err
			}

			taken, err := admin.TakeSnapshot(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("take a backup of etcd of cluster %s: %w", name, err)
			}

			if format != formatTable {
				return a.printValue(format, taken)
			}

			fmt.Fprintln(a.Stdout, taken.ID)
			a.printMessage("took backup of cluster %s: revision %d, %d keys, %s", name, taken.Revision, taken.Keys,
				formatBytes(taken.DBSize))

			return nil
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)
	a.addLockFlag(cmd)
	cmd.Flags().DurationVar(
		&request.StartTimeout,
		"timeout",
		etcdadmin.DefaultStartTimeout,
		"give up if no machine has begun after this time",
	)

	return cmd
}

func newEtcdDefragCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "defrag [NAME]",
		Short: "Defragment the databases of etcd, one member at a time",
		Long: `Give space that deleted and compacted keys left in the databases back to the disks. A member answers nothing while it is
defragmented, about a second for 100 MiB. So one member follows the other, the leader is the last one and gives the leadership
away first, and every member must be healthy before each step.` + exitStatusHelp(),
		Example: "  slipway etcd defrag demo\n  slipway etcd defrag demo --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			return etcdCommand{a}.defragment(cmd.Context(), args, name)
		},
	}

	addNameFlag(cmd, &name)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

// defragment shows the order of the members and, once that is confirmed, has them defragmented.
func (a etcdCommand) defragment(ctx context.Context, args []string, name string) error {
	admin, name, err := a.open(ctx, args, name)
	if err != nil {
		return err
	}

	status, err := admin.Status(ctx)
	if err != nil {
		return err
	}

	order, err := etcdadmin.DefragOrder(status)
	if err != nil {
		return err
	}

	for n, m := range order {
		fmt.Fprintf(a.Stdout, "%d. defragment %s (%s, %s)\n", n+1, m.Name, m.Role, formatBytes(m.DBSize))
	}

	if err := a.confirm(fmt.Sprintf("Defragment etcd of cluster %s?", name)); err != nil {
		return err
	}

	answer, err := admin.Carry(ctx, etcdadmin.Request{Type: backup.RequestDefrag})
	for _, m := range answer.Members {
		a.printMessage("%s: %s before, %s after, %s", m.Member, formatBytes(m.Before), formatBytes(m.After),
			time.Duration(m.Seconds*float64(time.Second)).Round(time.Millisecond))
	}

	if err != nil {
		return fmt.Errorf("defragment etcd of cluster %s: %w", name, err)
	}

	return nil
}

// formatBytes formats a size for people; empty for zero.
func formatBytes(n int64) string {
	const unit = 1024
	switch {
	case n == 0:
		return ""
	case n < unit*unit:
		return fmt.Sprintf("%d KiB", (n+unit-1)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/unit/unit)
	}

	return fmt.Sprintf("%.1f GiB", float64(n)/unit/unit/unit)
}

// formatNumber formats a number; empty for zero.
func formatNumber(n uint64) string {
	if n == 0 {
		return ""
	}

	return strconv.FormatUint(n, 10)
}
