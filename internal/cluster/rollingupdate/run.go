// SPDX-License-Identifier: Apache-2.0

// Package rollingupdate replaces the machines of a running cluster, one after the other, until all of them have the
// newest launch template of their groups.
//
// It observes AWS and Kubernetes, has package rollout decide, and carries the decision out: it cordons and drains nodes
// (package drain) and terminates machines, which their Auto Scaling groups replace. What has begun is visible on the
// nodes, so that a run that was killed is continued by the next one.
package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Request asks to replace the machines of a cluster. Zero values of the limits mean: as the manifests say.
type Request struct {
	// Name of the cluster.
	Name string
	// Groups are the names of the groups to update. Empty: all.
	Groups []string
	// Force also replaces machines that have the newest launch template.
	Force bool
	// Rollback returns the groups to the launch template version with which they served last, and replaces the
	// machines that have another one.
	Rollback bool
	// Retry also moves groups to the launch template versions from which an earlier rollback has returned.
	Retry bool
	// RetryRefused lets machines that could not apply their node document try it again first.
	RetryRefused bool
	// MaxUnavailable is how many workers of a group may be missing at once: a number or a percentage of the group's
	// size, such as 25%, rounded down, at least 1.
	MaxUnavailable string
	// MaxSurge is how many additional workers of a group may run: a number or a percentage, rounded up.
	MaxSurge string
	// Canary is how many workers of a group are replaced first: a number or a percentage, rounded up.
	Canary string
	// PauseBetween is the time between a new machine that serves and the next drain.
	PauseBetween time.Duration
	// DrainTimeout is how long a drain may take before the update stops. Negative: no limit.
	DrainTimeout time.Duration
	// MaxFailures is the number of machines of a group that do not join after which the update stops.
	MaxFailures int
	// AutomaticRollback rolls back when the update stops because of failures, also if no manifest asks for it.
	AutomaticRollback bool
	// JoinTimeout is how long a new machine may take until it is Ready. Required.
	JoinTimeout time.Duration
	// Show shows the machines that will be replaced.
	Show func([]rollout.Action) error
	// Approve asks whether to do it; an error stops the request.
	Approve func(replaced int) error
	// ApproveRetry asks whether the machines of groups shall try again. It is required with RetryRefused.
	ApproveRetry func(groups []string) error
	// RunCommand runs the commands of gates. Nil: a gate with a command does not pass.
	RunCommand RunCommand
	// OnEvent is told each step, by one goroutine at a time. Nil: the messages of the events go to Env.Notifyf.
	OnEvent func(Event)
	// OnProgress is told the state of all machines after each decision, by one goroutine at a time. It may be nil.
	OnProgress func(Progress)
}

// Result is how an update ended.
type Result struct {
	// Replaced is the number of machines that were terminated.
	Replaced int
	// UpToDate is set if there was nothing to do.
	UpToDate bool
	// Took is how long it took after the approval.
	Took time.Duration
}

// Run shows which machines it would replace and, once that is approved, replaces them under the cluster's lock. If
// Env.ReadOnly it only shows.
//
// When ctx is cancelled while machines are replaced, Run completes the replacements that have begun, begins no other,
// and returns an error that wraps [context.Canceled] and says how far it came. A process that is killed instead can be
// continued by the next run.
func Run(ctx context.Context, env *cluster.Env, req Request) (Result, error) {
	from, session, err := open(ctx, env, req.Name, req.Groups)
	if err != nil {
		return Result{}, err
	}

	u, err := newUpdater(ctx, session, from, req)
	if err != nil {
		return Result{}, err
	}

	if req.Rollback {
		if err := u.loadRollback(ctx, from); err != nil {
			return Result{}, err
		}
	}

	return u.showAndRun(ctx, func(ctx context.Context, do func(context.Context) error) error {
		request := cluster.OperationRequest{Store: from.state, Cluster: req.Name, Kind: "rolling-update"}

		// The operation outlives the cancellation of ctx, except while it waits for the lock.
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		detach := context.AfterFunc(ctx, cancel)

		return env.RunOperation(work, request, func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			if !detach() {
				return context.Canceled
			}

			session.UseOperation(op, guarded)
			u.good.store = guarded
			u.save = saveProgress(op)

			return do(ctx)
		})
	})
}

// Plan returns the machines that Run would replace now, in their order. It changes nothing and takes no lock.
func Plan(ctx context.Context, env *cluster.Env, req Request) ([]rollout.Action, error) {
	from, session, err := open(ctx, env, req.Name, req.Groups)
	if err != nil {
		return nil, err
	}

	u, err := newUpdater(ctx, session, from, req)
	if err != nil {
		return nil, err
	}

	if req.Rollback {
		if err := u.loadRollback(ctx, from); err != nil {
			return nil, err
		}
	}

	first, err := u.observeFirst(ctx, u.observer.observe)
	if err != nil {
		return nil, err
	}

	return rollout.Plan(first, u.options(first)), nil
}

// saveProgress returns a function that records how far an update has come in the record of its operation.
func saveProgress(op *operation.Operation) func(context.Context, int, string) error {
	return func(ctx context.Context, replaced int, remark string) error {
		op.UpdateRecord(func(r *operation.Record) {
			r.CompletedSteps = replaced
			r.Remark = remark
		})

		return op.SaveRecord(ctx)
	}
}

// open reads the manifests of a cluster and opens a session.
func open(
	ctx context.Context,
	env *cluster.Env,
	name string,
	groups []string,
) (updateSource, *cluster.Session, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return updateSource{}, nil, err
	}

	set, err := clusterstate.LoadManifests(ctx, state, name)
	if err != nil {
		return updateSource{}, nil, err
	}

	if err := checkGroups(set, name, groups); err != nil {
		return updateSource{}, nil, err
	}

	session, err := cluster.Open(ctx, env, name, set.Cluster.Spec.CloudProvider.AWS.Region)

	return updateSource{state: state, sealer: sealer, set: set}, session, err
}

// updateSource is what an update reads besides AWS and Kubernetes.
type updateSource struct {
	state  store.Store
	sealer store.Sealer
	set    manifest.Set
}

// newUpdater connects to the cluster. It refuses the machines of another cluster of the same name, and outdated copies
// of a state store.
func newUpdater(ctx context.Context, session *cluster.Session, from updateSource, req Request) (*updater, error) {
	if _, err := session.ReadResources(ctx, from.state, from.set); err != nil {
		return nil, err
	}

	owner, _, err := clusterstate.ReadOwnership(ctx, from.state, req.Name)
	if err != nil {
		return nil, err
	}

	env := session.Env
	settings, err := resolveSettings(from.set, req)
	if err != nil {
		return nil, err
	}

	clock := &clusterClock{local: env.Now}
	client, err := access.NewKubeClient(ctx, session.Config, access.Request{
		Store:      from.state,
		Sealer:     from.sealer,
		Cluster:    req.Name,
		User:       env.User,
		Now:        env.Now,
		OnResponse: clock.observe,
	})
	if err != nil {
		return nil, err
	}

	provisioner, err := clusterstate.ReadProvisioner(ctx, from.state, req.Name)
	if err != nil {
		return nil, err
	}

	machines := newAWSMachines(session.Config, req.Name, owner, clock.now)
	machines.belongsToStack = provisioner == clusterstate.CloudFormation
	onEvent := req.OnEvent
	if onEvent == nil {
		onEvent = func(e Event) { env.Notifyf("%s", e.Message) }
	}

	return &updater{
		request:  req,
		client:   client,
		machines: machines,
		now:      clock.now,
		warn:     env.Warn,
		notify:   env.Notifyf,
		report:   newReporter(clock.now, onEvent, req.OnProgress),
		gates:    gateChecker{client: client, http: http.DefaultTransport, run: req.RunCommand},
		observer: observer{now: clock.now, machines: machines, client: client, settings: settings},
		good:     goodVersions{store: from.state, cluster: req.Name},
		turn:     controlPlaneTurn{client: client, now: clock.now},

		documents: sessionDocuments{awsMachines: machines, session: session},
		pools:     newPools(session, from.set, req),
	}, nil
}

// checkGroups rejects groups that the cluster does not have or that have no nodes.
func checkGroups(set manifest.Set, name string, groups []string) error {
	known := map[string]bool{}
	var names []string
	for _, g := range set.Groups {
		known[g.Metadata.Name] = true
		names = append(names, g.Metadata.Name)
	}

	for _, group := range groups {
		if !known[group] {
			return diag.WithHint(
				fmt.Errorf("cluster %s has no group %s", name, group),
				"use one of "+strings.Join(names, ", "),
			)
		}
	}

	return nil
}

// observeAccepted observes the cluster when its machines follow or have refused their documents, which are then offered once more.
func (u *updater) observeAccepted(
	ctx context.Context,
	underLock func(context.Context, func(context.Context) error) error,
) (rollout.Observation, error) {
	first, err := u.observeFirst(ctx, u.awaitFollowers)
	if err != nil {
		return first, err
	}

	if first, err = u.retryRefused(ctx, first, underLock); err != nil {
		return first, err
	}

	return first, u.checkRefusals(first)
}

// showAndRun shows the plan, asks for approval, and replaces machines while it holds the lock. The cancellation of ctx
// stops it after the machines in progress.
func (u *updater) showAndRun(
	ctx context.Context,
	underLock func(context.Context, func(context.Context) error) error,
) (Result, error) {
	first, err := u.observeAccepted(ctx, underLock)
	if err != nil {
		return Result{}, err
	}

	options := u.options(first)
	planned := rollout.Plan(first, options)
	if err := u.request.Show(planned); err != nil {
		return Result{}, err
	}

	u.tellVersions(first, options, len(planned))
	pools, err := u.findWaitingPools(ctx)
	if err != nil {
		return Result{}, err
	}

	next := update{first: first, options: options, pools: pools}
	next.hasMachines = len(planned) > 0 || u.changesVersions(first, options)
	if next.isEmpty() {
		return Result{UpToDate: true}, nil
	}

	if !options.Force.IsZero() && !options.Force.Equal(first.Now) {
		u.notify("continuing the forced update that began at %s: machines launched since then stay",
			options.Force.UTC().Format(time.DateTime+"Z"))
	}

	if len(u.versions) > 0 {
		u.notify("the rollback returns %s", describeVersions(u.versions))
	}

	if err := u.explainPlan(ctx, first, options); err != nil {
		return Result{}, err
	}

	if err := u.request.Approve(len(planned)); err != nil {
		return Result{}, err
	}

	start := u.now()
	u.report.begin(start, len(planned))
	err = underLock(ctx, func(work context.Context) error { return u.runAll(work, ctx.Done(), next) })
	replaced, _ := u.report.counts()

	return Result{Replaced: replaced, Took: u.now().Sub(start)}, err
}

// observeFirst returns the observation on which a plan is based. Without the API it fails.
func (u *updater) observeFirst(
	ctx context.Context,
	observe func(context.Context) (rollout.Observation, error),
) (rollout.Observation, error) {
	if err := u.avoidFailed(ctx); err != nil {
		return rollout.Observation{}, err
	}

	first, err := observe(ctx)
	if err != nil {
		return first, err
	}

	if !first.APIReady {
		return first, diag.WithHint(
			errors.New("the Kubernetes API does not answer, so that nodes cannot be drained"),
			"slipway validate cluster "+u.request.Name+" shows why",
		)
	}

	u.addMemory(&first)
	if u.request.Force {
		err = u.good.read(ctx, first)
	}

	return first, err
}

// runLocked replaces the machines. If that fails and a rollback is enabled, it rolls back.
func (u *updater) runLocked(
	ctx context.Context,
	stop <-chan struct{},
	first rollout.Observation,
	options rollout.Options,
) error {
	u.observer.holdsLock = true
	first, err := u.observeApproved(ctx, first, options)
	if err != nil {
		return err
	}

	if err := u.good.load(ctx, first); err != nil {
		return err
	}

	if !u.request.Rollback {
		if err := u.adoptFollowed(ctx, first); err != nil {
			return err
		}
	}

	if err := u.recordForced(ctx, options); err != nil {
		return err
	}

	if err := u.setVersions(ctx, first); err != nil {
		return err
	}

	err = u.replaceAll(ctx, stop, options)
	if err == nil {
		u.report.tell(EventDone, rollout.Machine{}, u.describeDone(ctx))
		if !options.Force.IsZero() {
			u.good.forced = nil
		}

		return u.good.save(ctx, first, u.request.Groups, u.versions)
	}

	failure, isFailure := errors.AsType[stoppedError](err)
	if !isFailure || u.request.Rollback || !u.observer.settings.rollsBack(u.request.Groups) {
		return err
	}

	return u.rollBack(ctx, stop, options, failure)
}

// describeDone returns what is said at the end of an update that has replaced everything. The nodes of the machines that
// it terminated last are still there for a moment.
func (u *updater) describeDone(ctx context.Context) string {
	const done = "every machine is up to date"
	nodes, err := u.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return done
	}

	var left []string
	for _, n := range nodes.Items {
		if n.Annotations[rollout.StartedAnnotation] != "" {
			left = append(left, n.Name)
		}
	}

	if len(left) == 0 {
		return done
	}

	return done + "; the nodes of terminated machines disappear by themselves: " + strings.Join(left, ", ")
}

// forcedSince returns when the forced update began that this request continues, or now if it begins one.
func (u *updater) forcedSince(now time.Time) time.Time {
	f := u.good.forced
	if f == nil || !slices.Equal(f.Groups, u.request.Groups) || f.Since.After(now) || now.Sub(f.Since) > maxForcedAge {
		return now
	}

	return f.Since
}

// recordForced records when a forced update began, so that the next run can continue it.
func (u *updater) recordForced(ctx context.Context, options rollout.Options) error {
	if options.Force.IsZero() {
		return nil
	}

	u.good.forced = &forcedUpdate{Since: options.Force, Groups: u.request.Groups}

	return u.good.write(ctx)
}

// options returns the options of all decisions of this update.
func (u *updater) options(first rollout.Observation) rollout.Options {
	o := rollout.Options{JoinTimeout: u.request.JoinTimeout, Only: u.request.Groups}
	if u.request.Force && !u.request.Rollback {
		o.Force = u.forcedSince(first.Now)
	}

	return o
}
