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
	"github.com/slipway-k8s/slipway/internal/infra/stack"
	"github.com/slipway-k8s/slipway/internal/infra/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// planStack shows what a change set would do, and takes it back.
func (a *app) planStack(ctx context.Context, d *desired, o planOptions) error {
	if o.out != "" {
		return withHint(errors.New("a plan by CloudFormation can not be saved"), "apply asks before it does anything; leave --out away")
	}
	c, err := a.openStack(ctx, d, o.targetOptions)
	if err != nil {
		return err
	}
	defer c.report()
	p, err := c.propose(ctx, o.stack)
	if err != nil {
		return err
	}
	if err := c.withdraw(ctx, p); err != nil {
		return err
	}
	c.preface(p)
	c.d.plan = plan.Plan{Steps: p.Steps}
	if err := a.printPlan(o.format, c.name, c.d); err != nil {
		return err
	}
	if len(p.Steps) > 0 || len(c.d.missing) > 0 || p.again || stack.PhaseOf(p.info.Status) == stack.Stuck {
		return Exit{exitChanges}
	}
	return nil
}

// preface says what has to happen to the stack before its resources change.
func (c *stacked) preface(p proposal) {
	switch {
	case p.again:
		c.a.say("stack %s is in %s: it can only be deleted, with what it holds, and made again", c.stack.Name, p.info.Status)
	case stack.PhaseOf(p.info.Status) == stack.Stuck:
		c.a.say("stack %s is in %s: its rollback has to be gone on with before anything else", c.stack.Name, p.info.Status)
	}
}

// applyStack makes AWS what the manifests say by way of CloudFormation. It writes to state as the holder of op's lock.
func (a *app) applyStack(ctx context.Context, op *operation.Op, state store.Store, d *desired, o targetOptions) error {
	c, err := a.openStack(ctx, d, o)
	if err != nil {
		return err
	}
	c.op, c.state = op, state
	defer c.report()
	p, err := c.propose(ctx, o.stack)
	if err != nil {
		return err
	}
	if stack.PhaseOf(p.info.Status) == stack.Stuck {
		if p, err = c.unstick(ctx, o.stack, p); err != nil {
			return err
		}
	}
	c.preface(p)
	c.d.plan = plan.Plan{Steps: p.Steps}
	if err := a.printPlan(formatTable, c.name, c.d); err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	if len(p.Steps) == 0 && len(c.d.missing) == 0 {
		return c.withdraw(ctx, p)
	}
	if err := a.confirm("Apply this to cluster " + c.name + " by CloudFormation?"); err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	if err := c.begun(ctx, c.d, c.d.plan, len(c.d.missing)); err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	start := a.Now()
	if err := c.carryOut(ctx, p); err != nil {
		return err
	}
	a.say("applied in %s; see: slipway validate cluster %s --wait 10m", a.Now().Sub(start).Round(100*time.Millisecond), c.name)
	return nil
}

// unstick goes on with a rollback that failed, if it may, and then looks again.
func (c *stacked) unstick(ctx context.Context, o stackOptions, p proposal) (proposal, error) {
	c.preface(p)
	if err := c.a.confirm("Go on with the rollback of stack " + c.stack.Name + "?"); err != nil {
		return p, err
	}
	err := c.stack.Unstick(ctx, p.info)
	c.show.end()
	if err != nil {
		return p, c.explained(ctx, err)
	}
	return c.propose(ctx, o)
}

// carryOut publishes what machines read, then lets CloudFormation work.
func (c *stacked) carryOut(ctx context.Context, p proposal) error {
	if err := writeWay(ctx, c.state, c.name, viaStack); err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	if err := c.publish(ctx, c.d); err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	if len(p.Steps) == 0 {
		return c.withdraw(ctx, p)
	}
	policy, err := cloudformation.StackPolicy(c.d.graph)
	if err != nil {
		return errors.Join(err, c.withdraw(ctx, p))
	}
	if p.again {
		if p, err = c.makeAgain(ctx, p); err != nil {
			return err
		}
	}
	err = c.stack.Execute(ctx, p.Proposal)
	c.show.end()
	if err != nil {
		return c.explained(ctx, err)
	}
	return c.stack.Protect(ctx, string(policy))
}

// makeAgain deletes a stack that can not be changed and proposes it anew.
func (c *stacked) makeAgain(ctx context.Context, p proposal) (proposal, error) {
	err := c.stack.Delete(ctx, p.info, 0)
	c.show.end()
	if err != nil {
		return p, c.explained(ctx, err)
	}
	p.Proposal, err = c.offer(ctx, p.template, stack.Info{})
	return p, err
}

// explained adds to a failure what the machines that were waited for say of themselves.
func (c *stacked) explained(ctx context.Context, err error) error {
	failed, ok := errors.AsType[stack.FailedError](err)
	if !ok {
		return err
	}
	hint := "what was there before is there again; mend the cause and run it again"
	if stack.PhaseOf(failed.Status) == stack.Dead {
		hint = "mend the cause and run it again: the stack is then deleted and made again"
	}
	if said := c.machinesSay(ctx, failed.Cause); len(said) > 0 {
		err = fmt.Errorf("%w\n  %s", err, strings.Join(said, "\n  "))
	}
	return withHint(err, hint)
}

// machinesSay reads what the machines say that a failure comes of: those that said that they failed, else those that were
// waited for and are not well. A rollback has ended them; their consoles stay readable for a while.
func (c *stacked) machinesSay(ctx context.Context, cause stack.Cause) []string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	api, ids := ec2.NewFromConfig(c.cfg), cause.Machines
	if len(ids) == 0 {
		var err error
		if ids, err = c.machinesOf(ctx, api, cause); err != nil {
			return []string{"its machines can not be asked: " + err.Error()}
		}
	}
	var said []string
	for _, id := range ids {
		if report := lastReport(ctx, api, id); report != "" {
			said = append(said, "machine "+id+" says: "+report)
		}
	}
	return said
}

// machinesOf are those of the group that failed, or of all if what waits for all did, that began when it did or later.
func (c *stacked) machinesOf(ctx context.Context, api *ec2.Client, cause stack.Cause) ([]string, error) {
	group, found := strings.CutPrefix(string(cause.Addr), "autoscaling-group/")
	filters := []ec2types.Filter{{Name: sdk.String("tag:" + awskind.TagCluster), Values: []string{c.name}}}
	switch {
	case found:
		filters = append(filters, ec2types.Filter{Name: sdk.String("tag:aws:autoscaling:groupName"), Values: []string{group + "." + c.name}})
	case cause.Addr != "wait-condition/"+cloudformation.Gate:
		return nil, nil // nothing that waits for machines
	}
	out, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters})
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it was for
	}
	var ids []string
	for _, r := range out.Reservations {
		for _, in := range r.Instances {
			if !sdk.ToTime(in.LaunchTime).Before(cause.At.Add(-time.Minute)) {
				ids = append(ids, sdk.ToString(in.InstanceId))
			}
		}
	}
	return ids, nil
}

// lastReport is the last failure, else the last report, on a machine's console; empty for one that is well.
func lastReport(ctx context.Context, api *ec2.Client, id string) string {
	out, err := api.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	if err != nil {
		return "" // one that is gone for good
	}
	text, err := base64.StdEncoding.DecodeString(sdk.ToString(out.Output))
	if err != nil {
		return ""
	}
	return worstReport(health.ParseConsole(text))
}

// worstReport tells the stage that failed last and did not get over it, else the last report; nothing of a machine that has
// said that it is well. That a failure was signaled is no news.
func worstReport(reports []health.StageReport) string {
	const signal, done = "signal", "done"
	var failed []health.StageReport
	worst, told := health.StageReport{}, false
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
