// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
)

func newHistoryCommand(a *app) *cobra.Command {
	var name, format string
	limit := 20
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show the operations on a cluster, by whom and with what result",
		Long: `Show the journal of a cluster, newest operation first: who ran which command when, the planned changes, the result, and
the calls to AWS. An operation that was killed is shown as interrupted. The journal is kept when the cluster is deleted. It
contains no secrets.` + exitStatusHelp(),
		Example: "  slipway history demo\n  slipway history demo --limit 1 -o yaml\n  slipway history demo -o json | jq '.[] | select(.state != \"succeeded\")'",
		GroupID: groupState,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return a.runHistory(cmd.Context(), name, format, limit)
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)
	cmd.Flags().IntVar(&limit, "limit", limit, "number of operations to show; 0 for all")

	return cmd
}

func (a *app) runHistory(ctx context.Context, name, format string, limit int) error {
	if err := clusterstate.CheckName(name); err != nil {
		return err
	}

	if limit < 0 {
		return fmt.Errorf("--limit %d is not a valid number of operations", limit)
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	records, err := a.newClusterEnv().Coordinator(s, name).ListRecords(ctx, limit)
	if format != formatTable {
		if records == nil {
			records = []operation.Record{}
		}

		return firstError(a.printValue(format, records), err)
	}

	if len(records) == 0 {
		a.printMessage("nothing is recorded of a cluster %s in %s", name, s.URL())
		return err
	}

	rows := make([][]string, 0, len(records))
	for _, r := range records {
		rows = append(rows, recordRow(r))
	}

	a.printTable([]string{"NO", "BEGAN", "TOOK", "WHO", "OPERATION", "PLAN", "RESULT", ""}, rows)

	return err
}

func recordRow(r operation.Record) []string {
	took := ""
	calls := 0
	if !r.EndedAt.IsZero() {
		took = r.EndedAt.Sub(r.StartedAt).Round(100 * time.Millisecond).String()
	}

	for _, n := range r.Calls {
		calls += n
	}

	planned := strings.Join(r.Documents, " ")
	if n := len(r.Documents); n > 1 {
		planned = fmt.Sprintf("%d documents", n)
	}

	if p := r.Plan; p != nil {
		planned = fmt.Sprintf("+%d ~%d -%d", p.Add, p.Change, p.Destroy)
	}

	remark := r.Remark
	if calls > 0 {
		remark = fmt.Sprintf("%d calls", calls)
	}

	if r.Error != "" {
		remark, _, _ = strings.Cut(r.Error, "\n")
	}

	const width = 90
	if runes := []rune(remark); len(runes) > width {
		remark = string(runes[:width-1]) + "…"
	}

	return []string{
		strconv.FormatInt(r.Token, 10),
		cluster.FormatTime(r.StartedAt),
		took,
		r.Owner,
		r.Operation,
		planned,
		string(r.State),
		remark,
	}
}
