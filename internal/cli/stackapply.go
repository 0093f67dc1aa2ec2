// SPDX-License-Identifier: Apache-2.0

package cli

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
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// planStack shows what a change set would do, and takes it back.
func (a *app) planStack(ctx context.Context, d *desiredState, o planOptions) error {
	if o.out != "" {
		return withHint(
			errors.New("a plan by CloudFormation can not be saved"),
			"apply asks before it does anything; leave --out away",
		)
	}

	c, err := a.openStack(ctx, d, o.clusterOptions)
	if err != nil {
		return err
	}

	defer c.printCalls()
	p, err := c.proposeChange(ctx, o.stack)
	if err != nil {
		return err
	}

	if err := c.discardChangeSet(ctx, p); err != nil {
		return err
	}

	c.printStackState(p)
	c.desired.plan = plan.Plan{Steps: p.Steps}
	if err := a.printPlan(o.format, c.name, c.desired); err != nil {
		return err
	}

	if len(p.Steps) > 0 || len(c.desired.unpublished) > 0 || p.recreate ||
		stack.PhaseOf(p.info.Status) == stack.PhaseRollbackFailed {
		return Exit{exitChanges}
	}

	return nil
}

// printStackState says what has to happen to the stack before its resources change.
func (c *stackSession) printStackState(p stackProposal) {
	switch {
	case p.recreate:
		c.app.printMessage(
			"stack %s is in %s: it can only be deleted, with what it holds, and made again",
			c.client.Name,
			p.info.Status,
		)

	case stack.PhaseOf(p.info.Status) == stack.PhaseRollbackFailed:
		c.app.printMessage(
			"stack %s is in %s: its rollback has to be gone on with before anything else",
			c.client.Name,
			p.info.Status,
		)
	}
}

// applyStack makes AWS what the manifests say by way of CloudFormation. It writes to state as the holder of op's lock.
func (a *app) applyStack(
	ctx context.Context,
	op *operation.Operation,
	state store.Store,
	d *desiredState,
	o clusterOptions,
) error {
	c, err := a.openStack(ctx, d, o)
	if err != nil {
		return err
	}

	c.operation = op
	c.guardedState = state
	defer c.printCalls()
	p, err := c.proposeChange(ctx, o.stack)
	if err != nil {
		return err
	}

	if stack.PhaseOf(p.info.Status) == stack.PhaseRollbackFailed {
		if p, err = c.continueRollback(ctx, o.stack, p); err != nil {
			return err
		}
	}

	c.printStackState(p)
	c.desired.plan = plan.Plan{Steps: p.Steps}
	if err := a.printPlan(formatTable, c.name, c.desired); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if len(p.Steps) == 0 && len(c.desired.unpublished) == 0 {
		return c.discardChangeSet(ctx, p)
	}

	if err := a.confirm("Apply this to cluster " + c.name + " by CloudFormation?"); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if err := c.recordStart(ctx, c.desired, c.desired.plan, len(c.desired.unpublished)); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	start := a.Now()
	if err := c.publishAndExecute(ctx, p); err != nil {
		return err
	}

	a.printMessage(
		"applied in %s; see: slipway validate cluster %s --wait 10m",
		a.Now().Sub(start).Round(100*time.Millisecond),
		c.name,
	)

	return nil
}

// continueRollback goes on with a rollback that failed, if it may, and then looks again.
func (c *stackSession) continueRollback(
	ctx context.Context,
	o stackOptions,
	p stackProposal,
) (stackProposal, error) {
	c.printStackState(p)
	if err := c.app.confirm("Go on with the rollback of stack " + c.client.Name + "?"); err != nil {
		return p, err
	}

	err := c.client.ContinueRollback(ctx, p.info)
	c.progress.endLine()
	if err != nil {
		return p, c.addMachineReports(ctx, err)
	}

	return c.proposeChange(ctx, o)
}

// publishAndExecute publishes what machines read, then lets CloudFormation work.
func (c *stackSession) publishAndExecute(ctx context.Context, p stackProposal) error {
	if err := ensureProvisioner(ctx, c.guardedState, c.name, provisionerStack); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if err := c.publishObjects(ctx, c.desired); err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if len(p.Steps) == 0 {
		return c.discardChangeSet(ctx, p)
	}

	policy, err := cloudformation.StackPolicy(c.desired.graph)
	if err != nil {
		return errors.Join(err, c.discardChangeSet(ctx, p))
	}

	if p.recreate {
		if p, err = c.recreateStack(ctx, p); err != nil {
			return err
		}
	}

	err = c.client.ExecuteChangeSet(ctx, p.ChangeSet)
	c.progress.endLine()
	if err != nil {
		return c.addMachineReports(ctx, err)
	}

	return c.client.Protect(ctx, string(policy))
}

// recreateStack deletes a stack that can not be changed and proposes it anew.
func (c *stackSession) recreateStack(ctx context.Context, p stackProposal) (stackProposal, error) {
	err := c.client.Delete(ctx, p.info, 0)
	c.progress.endLine()
	if err != nil {
		return p, c.addMachineReports(ctx, err)
	}

	p.ChangeSet, err = c.createChangeSet(ctx, p.template, stack.Info{})

	return p, err
}

// addMachineReports adds to a failure what the machines that were waited for say of themselves.
func (c *stackSession) addMachineReports(ctx context.Context, err error) error {
	failed, ok := errors.AsType[stack.FailedError](err)
	if !ok {
		return err
	}

	hint := "what was there before is there again; mend the cause and run it again"
	if stack.PhaseOf(failed.Status) == stack.PhaseDeleteOnly {
		hint = "mend the cause and run it again: the stack is then deleted and made again"
	}

	if said := c.readMachineReports(ctx, failed.Cause); len(said) > 0 {
		err = fmt.Errorf("%w\n  %s", err, strings.Join(said, "\n  "))
	}

	return withHint(err, hint)
}

// readMachineReports reads what the machines say that a failure comes of: those that said that they failed, else those that were
// waited for and are not well. A rollback has ended them; their consoles stay readable for a while.
func (c *stackSession) readMachineReports(ctx context.Context, cause stack.FailureCause) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	api := ec2.NewFromConfig(c.cfg)
	ids := cause.Machines
	if len(ids) == 0 {
		var err error
		if ids, err = c.findFailedMachines(ctx, api, cause); err != nil {
			return []string{"its machines can not be asked: " + err.Error()}
		}
	}

	var said []string

	for _, id := range ids {
		if report := readLastReport(ctx, api, id); report != "" {
			said = append(said, "machine "+id+" says: "+report)
		}
	}

	return said
}

// findFailedMachines are those of the group that failed, or of all if what waits for all did, that began when it did or later.
func (c *stackSession) findFailedMachines(
	ctx context.Context,
	api *ec2.Client,
	cause stack.FailureCause,
) ([]string, error) {
	group, found := strings.CutPrefix(string(cause.Addr), "autoscaling-group/")
	filters := []ec2types.Filter{{Name: sdk.String("tag:" + awskind.TagCluster), Values: []string{c.name}}}
	switch {
	case found:
		filters = append(
			filters,
			ec2types.Filter{
				Name:   sdk.String("tag:aws:autoscaling:groupName"),
				Values: []string{group + "." + c.name},
			},
		)

	case cause.Addr != "wait-condition/"+cloudformation.ControlPlaneGate:
		return nil, nil // nothing that waits for machines
	}

	out, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was for
	}

	var ids []string

	for _, r := range out.Reservations {
		for _, in := range r.Instances {
			if !sdk.ToTime(in.LaunchTime).Before(cause.StartedAt.Add(-time.Minute)) {
				ids = append(ids, sdk.ToString(in.InstanceId))
			}
		}
	}

	return ids, nil
}

// readLastReport is the last failure, else the last report, on a machine's console; empty for one that is well.
func readLastReport(ctx context.Context, api *ec2.Client, id string) string {
	out, err := api.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	if err != nil {
		return "" // one that is gone for good
	}

	text, err := base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
	if err != nil {
		return ""
	}

	return summarizeWorst(health.ParseConsole(text))
}

// summarizeWorst tells the stage that failed last and did not get over it, else the last report; nothing of a machine that has
// said that it is well. That a failure was signaled is no news.
func summarizeWorst(reports []health.StageReport) string {
	const signal, done = "signal", "done"
	var failed []health.StageReport
	worst := health.StageReport{}
	told := false

	for _, r := range reports {
		if r.State == done { // to try again is not to have got over it
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
