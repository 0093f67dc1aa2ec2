// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/region"
	"github.com/slipway-k8s/slipway/internal/region/fault"
)

func newRegionFaultsCommand(a *app) *cobra.Command {
	return newGroupCommand("faults", "Inject faults into calls to the local region", "",
		newRegionFaultsAddCommand(a), newRegionFaultsListCommand(a), newRegionFaultsClearCommand(a))
}

func newRegionFaultsAddCommand(a *app) *cobra.Command {
	r := fault.Rule{}
	delay := time.Duration(0)
	effect := ""
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Inject a fault into calls to the local region",
		Long: `Inject a fault into calls to the local region, to see how a command, a controller or a pipeline reacts.

  fail         the call fails with the error --code and has no effect
  throttle     the call fails with the service's throttling error and has no effect
  delay        the call runs after --delay
  drop-answer  the call takes effect, and the connection closes without a response
  close        the connection closes, and the call has no effect
  kill         the calling process is killed (SIGKILL), and the call has no effect
  kill-after   the call takes effect, then the calling process is killed
  provision    no call fails: resources of --kind take --delay to become available
  no-capacity  EC2 has no capacity for instances of type --kind, or for spot instances with --kind spot, also for
               those of Auto Scaling groups
  spot-interruption         no call fails: spot instance --instance gets the interruption notice and is
                            terminated after --delay (default: AWS's two minutes)
  rebalance-recommendation  no call fails: spot instance --instance gets the rebalance recommendation

Calls are counted per fault from the moment it was added, including those of machines. Faults last until they are cleared
or the region's process ends.` + exitStatusHelp(),
		Example: `  slipway region faults add --service ec2 --action CreateVolume --nth 3 --effect fail --code VolumeLimitExceeded
  slipway region faults add --mutating --nth 40 --effect kill-after
  slipway region faults add --service ec2 --effect throttle --count 20
  slipway region faults add --effect provision --kind nat-gateway --delay 100s
  slipway region faults add --effect no-capacity --kind t3.large
  slipway region faults add --effect spot-interruption --instance i-0123456789abcdef0`,
		Args: requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			r.Delay = fault.Duration(delay)
			r.Effect = fault.Effect(effect)
			added, err := region.AddFault(ctx, cache, r)
			if err != nil {
				return withRegionHint(err)
			}

			a.printMessage("fault %d: %s", added.ID, describeFault(added))

			return nil
		}),
	}

	addCallFlags(cmd, &r)
	f := cmd.Flags()
	f.StringVar(&effect, "effect", "", "effect: "+joinEffects("|"))
	f.StringVar(&r.Code, "code", "", "the error's code, for fail and throttle (default: the service's own)")
	f.DurationVar(&delay, "delay", 0, "duration, for delay, provision and spot-interruption")
	f.StringVar(&r.Instance, "instance", "", "instance id, for spot-interruption and rebalance-recommendation")
	f.StringVar(&r.Kind, "kind", "", "for no-capacity an instance type or spot; for provision: "+strings.Join(fault.ProvisionKinds(), "|"))
	requireFlag(cmd, "effect", "one of "+joinEffects(", "))
	completeFixed(cmd, "effect", strings.Split(joinEffects("|"), "|"))
	completeFixed(cmd, "kind", fault.ProvisionKinds())

	return cmd
}

// completeFixed completes a flag with fixed values.
func completeFixed(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// addCallFlags adds the flags that select the calls of a fault.
func addCallFlags(cmd *cobra.Command, r *fault.Rule) {
	f := cmd.Flags()
	f.StringVar(
		&r.Service,
		"service",
		"",
		"the service by its signing name, such as ec2 or elasticloadbalancing (default: all)",
	)

	f.StringVar(&r.Action, "action", "", "the operation, such as CreateVolume or Create* (default: all)")
	f.BoolVar(&r.Mutating, "mutating", false, "only calls that change something")
	f.IntVar(&r.Nth, "nth", 0, "the first call to affect, counted from now (default 1)")
	f.IntVar(&r.Count, "count", 0, "number of calls to affect; -1 means all (default 1)")
}

// joinEffects returns the names of all effects.
func joinEffects(sep string) string {
	var out []string
	for _, e := range fault.Effects() {
		out = append(out, string(e))
	}

	return strings.Join(out, sep)
}

func newRegionFaultsListCommand(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the injected faults",
		Long:    "List the injected faults of the local region, with the number of calls that each has seen and affected." + exitStatusHelp(),
		Example: "  slipway region faults list\n  slipway region faults list -o json",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			rules, err := region.ListFaults(ctx, cache)
			if err != nil {
				return withRegionHint(err)
			}

			if format != formatTable {
				return a.printValue(format, rules)
			}

			var rows [][]string

			for _, r := range rules {
				rows = append(
					rows,
					[]string{strconv.Itoa(r.ID), describeFault(r), strconv.Itoa(r.Seen), strconv.Itoa(r.Hit)},
				)
			}

			a.printTable([]string{"ID", "FAULT", "SEEN", "HIT"}, rows)

			return nil
		}),
	}

	addFormatFlag(cmd, &format)

	return cmd
}

func newRegionFaultsClearCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "clear",
		Short:   "Remove all injected faults",
		Long:    "Remove all injected faults of the local region." + exitStatusHelp(),
		Example: "  slipway region faults clear",
		Args:    requireNoArguments,
		RunE: a.withCacheDir(func(ctx context.Context, cache string) error {
			n, err := region.ClearFaults(ctx, cache)
			if err != nil {
				return withRegionHint(err)
			}

			a.printMessage("%d faults are cleared", n)

			return nil
		}),
	}
}

// describeFault describes a fault in one line.
func describeFault(r fault.Rule) string {
	if r.Effect == fault.EffectProvision {
		return r.Kind + " takes " + r.Delay.String()
	}

	if r.Effect == fault.EffectNoCapacity {
		return "no capacity for " + r.Kind
	}

	what := string(r.Effect)
	if r.Instance != "" {
		return what + " of " + r.Instance
	}

	if r.Delay != 0 {
		what += " by " + r.Delay.String()
	}

	if r.Code != "" {
		what += " with " + r.Code
	}

	calls := "call " + strconv.Itoa(max(r.Nth, 1))
	if r.Count < 0 {
		calls = "every call from " + strconv.Itoa(max(r.Nth, 1))
	} else if r.Count > 1 {
		calls = "calls " + strconv.Itoa(max(r.Nth, 1)) + " to " + strconv.Itoa(max(r.Nth, 1)+r.Count-1)
	}

	service := r.Service
	action := r.Action
	if service == "" {
		service = "*"
	}

	if action == "" {
		action = "*"
	}

	to := " of " + service + ":" + action
	if r.Mutating {
		to += " that change something"
	}

	return what + " " + calls + to
}

// withRegionHint adds how to start a region to an error that none runs.
func withRegionHint(err error) error {
	if errors.Is(err, region.ErrNotRunning) {
		return withHint(err, "slipway region start")
	}

	return err
}
