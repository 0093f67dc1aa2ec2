// SPDX-License-Identifier: Apache-2.0

// Package upgrade upgrades a running cluster to another version of Kubernetes and of the components in the asset
// catalogue.
//
// It observes the manifests, what was applied last and the nodes, has [Decide] choose the next step, and carries the
// step out with the packages that do such things anyway: it writes manifests (package manifests), applies them
// (package apply) and replaces machines (package rollingupdate). Each step takes the cluster's lock and has its own
// record in the journal. An upgrade that was killed is continued by the next one, because steps are derived from the
// observed state.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/cluster/preflight"
	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/stackapply"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Request asks to upgrade a cluster.
type Request struct {
	// Name of the cluster.
	Name string
	// Version of Kubernetes. Empty: that of an unfinished upgrade, else the newest one that can be reached.
	Version string
	// Catalog is the path or URL of the asset catalogue; empty: the embedded one.
	Catalog string
	// IgnoreRemovedAPIs upgrades although clients use APIs that the version does not have.
	IgnoreRemovedAPIs bool
	// IgnoreAddonVersions upgrades although add-ons are not for the version.
	IgnoreAddonVersions bool
	// SkipBackup upgrades without a backup of etcd first.
	SkipBackup bool
	// DrainTimeout is how long a drain may take before the upgrade stops. Negative: no limit; zero: as the
	// manifests say.
	DrainTimeout time.Duration
	// JoinTimeout is how long a new machine may take until it is Ready. Required.
	JoinTimeout time.Duration
	// RunCommand runs the commands of gates. Nil: a gate with a command does not pass.
	RunCommand rollingupdate.RunCommand
	// Show shows the upgrade before it is approved.
	Show func(Proposal) error
	// Approve asks whether to do it; an error stops the request.
	Approve func(Proposal) error
	// OnEvent is told each step of the upgrade and of the rolling updates that it contains, by one goroutine at a time.
	// Nil: the messages of the events go to Env.Notifyf.
	OnEvent func(rollingupdate.Event)
	// OnProgress is told the state of all machines while they are replaced, by one goroutine at a time. It may be nil.
	OnProgress func(rollingupdate.Progress)

	// patchesOnly chooses no version of another minor version.
	patchesOnly bool
}

// Proposal is what an upgrade will do.
type Proposal struct {
	// Cluster is the name of the cluster.
	Cluster string
	// From is the oldest version of the control plane, and To the one to upgrade to.
	From, To Version
	// Steps in their order. Empty: every group and machine has the version, and some machines have an older launch
	// template, such as after a kill.
	Steps []Step
	// Backup is set if a backup of etcd is taken before the first step.
	Backup bool
	// Components that change besides Kubernetes.
	Components []Component
	// Removed are the APIs in use that the version does not have.
	Removed []RemovedAPI
	// Servers is the number of API servers, and Asked how many of them told which APIs are in use.
	Servers, Asked int
	// Unfit are the add-ons that are not for the version.
	Unfit []UnfitAddon
	// Gates are the checks of the manifests that must pass before a further machine is replaced.
	Gates []string
	// Outdated is the number of machines that have an older launch template already.
	Outdated int
}

// Result is how an upgrade ended.
type Result struct {
	// Version that the cluster has.
	Version Version
	// UpToDate is set if there was nothing to do.
	UpToDate bool
	// Reason is why an automatic upgrade did not run; empty if it ran.
	Reason string
	// Replaced is the number of machines that were terminated.
	Replaced int
	// Took is how long it took after the approval.
	Took time.Duration
}

// Run shows the upgrade of a cluster and, once that is approved, carries it out.
func Run(ctx context.Context, env *cluster.Env, req Request) (Result, error) {
	u, err := newUpgrader(ctx, env, req)
	if err != nil {
		return Result{}, err
	}

	proposal, err := u.propose(ctx)
	if err != nil {
		return Result{}, err
	}

	if len(proposal.Steps) == 0 && proposal.Outdated == 0 {
		return Result{Version: proposal.To, UpToDate: true}, nil
	}

	if err := req.Show(proposal); err != nil {
		return Result{}, err
	}

	if err := u.refuse(ctx, proposal); err != nil {
		return Result{}, err
	}

	if err := req.Approve(proposal); err != nil {
		return Result{}, err
	}

	start := env.Now()
	err = u.backUp(ctx, proposal)
	if err == nil {
		err = carryOut(ctx, u, u.target, len(proposal.Steps))
	}

	if err != nil {
		err = diag.WithHint(
			fmt.Errorf("upgrade cluster %s to %s: %w", req.Name, proposal.To, err),
			"fix the cause and rerun the command: it continues with the step that failed",
		)
	}

	return Result{Version: proposal.To, Replaced: u.replaced, Took: env.Now().Sub(start)}, err
}

// propose plans the upgrade from what it observes.
func (u *upgrader) propose(ctx context.Context) (Proposal, error) {
	o, err := u.observe(ctx)
	if err != nil {
		return Proposal{}, err
	}

	proposal := Proposal{
		Cluster:    u.request.Name,
		From:       oldestControlPlane(o),
		To:         u.target,
		Components: u.components,
		Steps:      Plan(o, u.target),
	}
	proposal.Backup = needsBackup(proposal, u.request.SkipBackup)
	if n := len(proposal.Steps); n > 0 && proposal.Steps[n-1].Failure != "" {
		return proposal, diag.WithHint(
			fmt.Errorf("cannot upgrade cluster %s to %s: %s", u.request.Name, u.target, proposal.Steps[n-1].Failure),
			"set --kubernetes-version to one of "+strings.Join(u.versionNames(), ", "),
		)
	}

	if problem := checkEtcd(u.components); problem != "" {
		return proposal, diag.WithHint(errors.New(problem), "use --assets with another catalogue")
	}

	if u.target.minorsAhead(proposal.From) > 0 {
		for _, m := range o.Machines {
			if m.ControlPlane {
				proposal.Servers++
			}
		}

		proposal.Removed, proposal.Asked, err = findRemovedAPIs(ctx, u.newClient, proposal.Servers, u.target)
		if err != nil {
			return proposal, err
		}
	}

	if u.target != proposal.From {
		if proposal.Unfit, err = u.findUnfitAddons(ctx); err != nil {
			return proposal, err
		}
	}

	if proposal.Gates, err = u.describeGates(ctx); err != nil {
		return proposal, err
	}

	proposal.Outdated, err = u.countOutdated(ctx)

	return proposal, err
}

// refuse returns why a proposal must not be carried out.
func (u *upgrader) refuse(ctx context.Context, proposal Proposal) error {
	if len(proposal.Removed) > 0 && !u.request.IgnoreRemovedAPIs {
		return diag.WithHint(
			fmt.Errorf("clients of cluster %s use %d APIs that Kubernetes %s does not have",
				u.request.Name, len(proposal.Removed), u.target),
			"change the clients, whose names are in the audit log with the annotation k8s.io/deprecated; "+
				"or set --ignore-removed-apis",
		)
	}

	if len(proposal.Unfit) > 0 && !u.request.IgnoreAddonVersions {
		return unfitError(proposal)
	}

	findings, err := preflight.Run(ctx, u.env, u.request.Name)
	if err != nil {
		return err
	}

	if err := findings.Err(); err != nil {
		return err
	}

	u.env.Warn(findings)

	return nil
}

// describeGates returns one line for each gate of the manifests.
func (u *upgrader) describeGates(ctx context.Context) ([]string, error) {
	set, err := clusterstate.LoadManifests(ctx, u.state, u.request.Name)
	if err != nil {
		return nil, err
	}

	return rollingupdate.DescribeGates(set), nil
}

// countOutdated returns how many machines have an older launch template than their group.
func (u *upgrader) countOutdated(ctx context.Context) (int, error) {
	planned, err := rollingupdate.Plan(ctx, u.env, u.rollingRequest(nil))
	return len(planned), err
}

// rollingRequest returns a request to replace the machines of groups; nil: all.
func (u *upgrader) rollingRequest(groups []string) rollingupdate.Request {
	return rollingupdate.Request{
		Name:         u.request.Name,
		Groups:       groups,
		Retry:        true, // somebody has asked to continue
		DrainTimeout: u.request.DrainTimeout,
		JoinTimeout:  u.request.JoinTimeout,
		RunCommand:   u.request.RunCommand,
		Show:         func([]rollout.Action) error { return nil },
		Approve:      func(int) error { return nil },
		OnEvent:      u.request.OnEvent,
		OnProgress:   u.request.OnProgress,
	}
}

// EventStep is the type of the events that tell the steps of an upgrade.
const EventStep rollingupdate.EventType = "step"

// maxRepeats limits how often one step is decided in a row. What a step has done can be visible late, such as the last Node
// of a terminated machine, which disappears within a minute: repeatPause is the time before a step is repeated.
const (
	maxRepeats  = 3
	repeatPause = 30 * time.Second
)

// stepper observes a cluster and does one step.
type stepper interface {
	observe(ctx context.Context) (Observation, error)
	carryOutStep(ctx context.Context, s Step) error
	replaceMachines(ctx context.Context, groups []string) error
	notifyf(format string, args ...any)
	wait(ctx context.Context, d time.Duration) error
}

// carryOut decides and acts until the cluster has the target. planned is the expected number of steps.
func carryOut(ctx context.Context, u stepper, target Version, planned int) error {
	last := ""
	repeats := 0
	for n := 1; ; n++ {
		o, err := u.observe(ctx)
		if err != nil {
			return err
		}

		s := Decide(o, target)
		if s.Failure != "" {
			return errors.New(s.Failure)
		}

		if s.Type == StepDone {
			break
		}

		repeats++
		if s.Describe() != last {
			repeats = 1
		}

		last = s.Describe()
		if repeats > maxRepeats {
			return fmt.Errorf("%s: succeeded %d times without an effect", last, maxRepeats)
		}

		if repeats > 1 {
			if err := u.wait(ctx, repeatPause); err != nil {
				return err
			}
		}

		u.notifyf("step %d of %d: %s", n, max(n, planned+1), last)
		if err := u.carryOutStep(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.Type, err)
		}
	}

	u.notifyf("every group has version %s; replacing machines with an older launch template, if any", target)

	return u.replaceMachines(ctx, nil)
}

// notifyf reports a step to the caller.
func (u *upgrader) notifyf(format string, args ...any) {
	if u.request.OnEvent == nil {
		u.env.Notifyf(format, args...)
		return
	}

	u.request.OnEvent(rollingupdate.Event{Time: u.env.Now(), Type: EventStep, Message: fmt.Sprintf(format, args...)})
}

// wait waits unless ctx ends before.
func (*upgrader) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// carryOutStep does one step.
func (u *upgrader) carryOutStep(ctx context.Context, s Step) error {
	switch s.Type {
	case StepWrite:
		return u.writeManifests(ctx, s.Versions)
	case StepApply:
		return u.applyManifests(ctx)
	case StepReplace:
		return u.replaceMachines(ctx, s.Groups)
	case StepDone:
	}

	return nil
}

// applyManifests applies the manifests: the launch templates get what they and the catalogue ask for.
func (u *upgrader) applyManifests(ctx context.Context) error {
	quiet := *u.env
	quiet.Hooks.Show = nil
	quiet.Hooks.Approve = nil
	options := stackapply.Options{ContinueRollback: true}
	_, err := apply.Run(ctx, &quiet, apply.Request{Name: u.request.Name, Stack: options})

	return err
}

// replaceMachines replaces the machines of groups that have an older launch template; nil: of all groups.
func (u *upgrader) replaceMachines(ctx context.Context, groups []string) error {
	result, err := rollingupdate.Run(ctx, u.env, u.rollingRequest(groups))
	u.replaced += result.Replaced

	return err
}

// writeManifests writes the versions of groups, and the asset catalogue if it is another one.
func (u *upgrader) writeManifests(ctx context.Context, versions map[string]Version) error {
	state, _, err := u.env.Stores.State(ctx)
	if err != nil {
		return err
	}

	change, err := manifests.LoadChange(ctx, state, u.request.Name, "")
	if err != nil {
		return err
	}

	if u.newCatalog {
		change = change.WithCatalog(u.catalog)
	}

	after, findings := change.Check(withVersions(change.Before(), versions), nil)
	if err := findings.Err(); err != nil {
		return err
	}

	if change, err = change.PinImages(ctx, u.env, after); err != nil {
		return err
	}

	writes, err := change.Writes(after)
	if err != nil {
		return err
	}

	if err := change.Apply(ctx, u.env, "upgrade", writes); err != nil {
		return err
	}

	u.newCatalog = false

	return nil
}

// versionNames returns the versions of Kubernetes in the asset catalogue, the newest first.
func (u *upgrader) versionNames() []string {
	all := slices.SortedFunc(slices.Values(u.available), func(a, b Version) int { return b.Compare(a) })
	var out []string
	for _, v := range all {
		out = append(out, v.String())
	}

	return out
}
