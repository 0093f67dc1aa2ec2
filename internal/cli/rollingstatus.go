// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

func newRollingUpdateStatusCommand(a *app) *cobra.Command {
	var name, format string
	var watch bool
	joinTimeout := defaultJoinTimeout
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show which machines are up to date, and where a rolling update is",
		Long: `Show each machine with its step in a rolling update, whoever runs it: pending, detached, draining, handing
over, terminating, starting, standby, failed or updated. Also show the last rolling update in the cluster's journal. The command takes no lock and changes nothing.

With --watch, print the state every 2 s when it has changed, until every machine is up to date.` + exitStatusHelp(),
		Example: "  slipway rolling-update status demo\n  slipway rolling-update status demo --watch\n" +
			"  slipway rolling-update status demo -o json | jq '.machines[] | select(.step != \"updated\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			s := rollStatus{app: a, name: name, format: format, joinTimeout: joinTimeout}
			if watch {
				return s.watch(cmd.Context())
			}

			_, _, err = s.print(cmd.Context(), "")

			return err
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)
	cmd.Flags().BoolVarP(
		&watch, "watch", "w", false,
		"print the state until every machine is up to date",
	)
	cmd.Flags().DurationVar(
		&joinTimeout,
		"join-timeout",
		joinTimeout,
		"a new machine that is not Ready after this time has failed",
	)

	return cmd
}

// rollStatus prints the status of a rolling update.
type rollStatus struct {
	*app
	name        string
	format      string
	joinTimeout time.Duration
}

// watch prints the status whenever it changes, until every machine is up to date.
func (s rollStatus) watch(ctx context.Context) error {
	shown := ""
	for {
		now, done, err := s.print(ctx, shown)
		if done || err != nil {
			return err
		}

		shown = now

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

// print prints the status unless it is the one that was shown. It returns the status as text, and whether every machine
// is up to date.
func (s rollStatus) print(ctx context.Context, shown string) (string, bool, error) {
	status, err := rollingupdate.ReadStatus(ctx, s.newClusterEnv(), s.name, s.joinTimeout)
	if err != nil {
		return "", false, err
	}

	rows := statusRows(status)
	text := fmt.Sprint(rows, status.Waiting)
	done := status.UpToDate == len(status.Machines) && len(status.Waiting) == 0
	if text == shown {
		return text, done, nil
	}

	if s.format != formatTable {
		return text, done, s.printValue(s.format, status)
	}

	s.printMessage("%s", describeStatus(status, s.Now()))
	s.printTable([]string{"MACHINE", "NODE", "GROUP", "ZONE", "VERSION", "AGE", "STEP", "WAITING FOR"}, s.withAges(rows, status))
	for _, w := range status.Waiting {
		s.printMessage("waiting: %s", w)
	}

	return text, done, nil
}

// statusRows returns the rows of the table, without ages.
func statusRows(status rollingupdate.Status) [][]string {
	var rows [][]string
	for _, m := range status.Machines {
		rows = append(rows, []string{
			m.Machine,
			m.Node,
			formatGroup(m.Group, m.Slot),
			m.Zone,
			m.Version,
			string(m.Step),
			m.WaitingFor,
		})
	}

	return rows
}

// withAges adds the column with the ages of the machines.
func (s rollStatus) withAges(rows [][]string, status rollingupdate.Status) [][]string {
	const before = 5
	var out [][]string
	for i, row := range rows {
		age := s.Now().Sub(status.Machines[i].Launched).Round(time.Second).String()
		out = append(out, append(append(append([]string{}, row[:before]...), age), row[before:]...))
	}

	return out
}

// describeStatus returns the summary of a status in one line.
func describeStatus(status rollingupdate.Status, now time.Time) string {
	text := fmt.Sprintf(
		"cluster %s: %d of %d machines are up to date",
		status.Cluster,
		status.UpToDate,
		len(status.Machines),
	)
	if !status.APIReady {
		text = "cluster " + status.Cluster + ": the Kubernetes API does not answer"
	}

	u := status.Update
	if u == nil {
		return text
	}

	switch {
	case u.EndedAt.IsZero() && u.State == "running":
		text += fmt.Sprintf("; %s by %s is running for %s", u.Operation, u.Owner, now.Sub(u.StartedAt).Round(time.Second))
	default:
		text += fmt.Sprintf("; the last %s by %s, begun at %s, is %s", u.Operation, u.Owner,
			cluster.FormatTime(u.StartedAt), u.State)
	}

	if isPending(status) {
		text += fmt.Sprintf("; about %s left", (time.Duration(status.RemainingSeconds) * time.Second).String())
	}

	return text
}

// isPending reports whether machines are left to replace.
func isPending(status rollingupdate.Status) bool {
	for _, m := range status.Machines {
		if m.Step != rollout.StepUpdated {
			return true
		}
	}

	return false
}
