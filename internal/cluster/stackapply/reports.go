// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// addMachineReports adds to a failure the boot reports of the machines that the stack waited for.
func (c *Applier) addMachineReports(ctx context.Context, err error) error {
	failed, ok := errors.AsType[stack.FailedError](err)
	if !ok {
		return err
	}

	hint := "the former state was restored; fix the cause and rerun"
	if stack.PhaseOf(failed.Status) == stack.PhaseDeleteOnly {
		hint = "fix the cause and rerun: the stack is then deleted and created again"
	}

	if reports := c.readMachineReports(ctx, failed.Cause); len(reports) > 0 {
		err = fmt.Errorf("%w\n  %s", err, strings.Join(reports, "\n  "))
	}

	return diag.WithHint(err, hint)
}

// readMachineReports returns the boot reports behind a failure: of the machines that signaled it, else of
// those that the stack waited for and that are not healthy. A rollback has terminated them; their consoles
// stay readable for a while.
func (c *Applier) readMachineReports(ctx context.Context, cause stack.FailureCause) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	api := ec2.NewFromConfig(c.session.Config)
	ids := cause.Machines
	if len(ids) == 0 {
		var err error
		if ids, err = c.findFailedMachines(ctx, api, cause); err != nil {
			return []string{"the consoles of its machines cannot be read: " + err.Error()}
		}
	}

	var reports []string

	for _, id := range ids {
		if report := readLastReport(ctx, api, id); report != "" {
			reports = append(reports, "machine "+id+" reports: "+report)
		}
	}

	return reports
}

// findFailedMachines returns the machines, launched since the failed step began, of the group that failed,
// or of all groups if the wait condition of the control plane failed.
func (c *Applier) findFailedMachines(
	ctx context.Context,
	api *ec2.Client,
	cause stack.FailureCause,
) ([]string, error) {
	group, found := strings.CutPrefix(string(cause.Addr), "autoscaling-group/")
	filters := []ec2types.Filter{{
		Name:   sdk.String("tag:" + awskind.TagCluster),
		Values: []string{c.session.Name},
	}}
	switch {
	case found:
		filters = append(
			filters,
			ec2types.Filter{
				Name:   sdk.String("tag:aws:autoscaling:groupName"),
				Values: []string{group + "." + c.session.Name},
			},
		)

	case cause.Addr != "wait-condition/"+cloudformation.ControlPlaneGate:
		return nil, nil // a step that does not wait for machines
	}

	pages := ec2.NewDescribeInstancesPaginator(api, &ec2.DescribeInstancesInput{Filters: filters})
	reservations, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeInstancesOutput) []ec2types.Reservation {
		return p.Reservations
	})
	if err != nil {
		return nil, err
	}

	var ids []string

	for _, r := range reservations {
		for _, in := range r.Instances {
			id := driver.FromEC2Tags(in.Tags)[awskind.TagClusterID]
			if id == c.session.ClusterID() &&
				!sdk.ToTime(in.LaunchTime).Before(cause.StartedAt.Add(-time.Minute)) {
				ids = append(ids, sdk.ToString(in.InstanceId))
			}
		}
	}

	return ids, nil
}

// readLastReport returns the last failure, else the last report, on a machine's console. It is empty for a
// healthy machine.
func readLastReport(ctx context.Context, api *ec2.Client, id string) string {
	out, err := api.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	if err != nil {
		return "" // the machine is gone
	}

	text, err := base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
	if err != nil {
		return ""
	}

	return summarizeWorst(health.ParseConsole(text))
}

// summarizeWorst returns the stage that failed last and did not succeed later, else the last report. It is
// empty for a machine that has signaled success. The stage "signal" itself is no news.
func summarizeWorst(reports []health.StageReport) string {
	const signal, done = "signal", "done"
	var failed []health.StageReport
	worst := health.StageReport{}
	told := false

	for _, r := range reports {
		if r.State == done { // only a success ends a failure, not another attempt
			failed = slices.DeleteFunc(failed, func(f health.StageReport) bool { return f.Stage == r.Stage })
		}

		if r.State == "failed" {
			failed = append(failed, r)
		}

		if told = told || r.Stage == signal && r.State == done; r.Stage != signal {
			worst = r
		}
	}

	switch {
	case len(failed) > 0:
		worst = failed[len(failed)-1]
	case worst.Stage == "" || told:
		return ""
	}

	text := fmt.Sprintf("stage %s %s", worst.Stage, worst.State)
	if worst.Error != "" {
		text += ": " + worst.Error
	}

	return text
}
