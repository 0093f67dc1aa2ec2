// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Session is one cluster in AWS during one request.
type Session struct {
	// Env of the caller.
	Env *Env
	// Name of the cluster.
	Name string
	// Config is for calls to the cluster's region. Calls that change something check the lock first.
	Config sdk.Config
	// Cloud reads and changes the cluster's resources.
	Cloud *aws.Cloud
	// Operation under which AWS is changed, set by UseOperation. Nil: AWS is only read.
	Operation *operation.Operation
	// State is the state store, guarded by the lock, set by UseOperation. Nil: nothing is recorded.
	State store.Store

	ownership      ownershipState
	recorder       resourceRecorder
	lastApplied    lastAppliedRecord
	cachedIdentity discovery.Identity // zero until CallerIdentity is called
	ownRoles       *roleOwner         // nil unless the resources are being read
	kubernetesCA   *pki.CA            // nil until it is decrypted
	stateRevision  int64              // of the signed documents, zero if they are not signed
}

// Open opens a session. manifestRegion is the region in the cluster's manifest, empty if the state has lost
// it; an Env.Region that differs from it is refused.
func Open(ctx context.Context, env *Env, name, manifestRegion string) (*Session, error) {
	region := cmp.Or(env.Region, manifestRegion)
	if manifestRegion != "" && region != manifestRegion {
		return nil, diag.WithHint(
			fmt.Errorf("cluster %s is in %s, not in %s", name, manifestRegion, region),
			"omit --region",
		)
	}

	cfg, err := env.AWS(ctx, region)
	if err != nil {
		return nil, err
	}

	session := &Session{Env: env, Name: name}
	session.Config = env.Calls.PaceCalls(transport.GateChanges(cfg, session.ensureLock))
	session.Cloud = aws.New(session.Config, aws.Scope{
		Cluster:  name,
		Region:   cfg.Region,
		RolePath: model.RolePath(name, cfg.Region),
		KeyAlias: model.KeyAliasName(name),
	})

	return session, nil
}

// UseOperation lets the session change AWS and write to the state store while op holds the cluster's lock.
// Without an operation (nil) it leaves the session read-only and s is read only.
func (session *Session) UseOperation(op *operation.Operation, s store.Store) {
	session.Operation = op
	session.State = s
}

// CallerIdentity returns the AWS identity of the caller. It asks STS once a session.
func (session *Session) CallerIdentity(ctx context.Context) (discovery.Identity, error) {
	if session.cachedIdentity.ARN != "" {
		return session.cachedIdentity, nil
	}

	who, err := discovery.GetCallerIdentity(ctx, session.Config)
	if err != nil {
		return who, diag.WithHint(
			err,
			"check the credentials: aws sts get-caller-identity; for the local region: eval \"$(slipway region env)\"",
		)
	}

	session.cachedIdentity = who

	return who, nil
}

// roleOwner is the account of the cluster's roles, if it has any. Its fields are valid once read is closed.
type roleOwner struct {
	read     chan struct{}
	identity discovery.Identity
	// resources are those that were read.
	resources []plan.ActualResource
}

// setFrom sets the account from the resources that were read. IAM lists only roles of the caller's account.
func (o *roleOwner) setFrom(actual []plan.ActualResource) {
	o.resources = actual
	for _, a := range actual {
		role, err := arn.Parse(a.Attributes["Arn"])
		if _, ok := a.Resource.(awskind.IAMRole); ok && err == nil {
			o.identity = discovery.Identity{Account: role.AccountID, Partition: role.Partition}
			return
		}
	}
}

// accountIdentity returns the account and the partition of the caller; the ARN may be empty. A run that changes
// nothing needs no call if the cluster has a role.
func (session *Session) accountIdentity(ctx context.Context) (discovery.Identity, error) {
	if session.ownRoles == nil || session.Operation != nil {
		return session.CallerIdentity(ctx)
	}

	<-session.ownRoles.read
	if session.ownRoles.identity.Account != "" {
		return session.ownRoles.identity, nil
	}

	return session.CallerIdentity(ctx)
}

// SkipZonesIfNone lets the session's cloud read no DNS records if the cluster never had any.
func (session *Session) SkipZonesIfNone(ctx context.Context, s store.Store, set manifest.Set) {
	none, err := clusterstate.HadNoDNS(ctx, s, session.Name)
	if err == nil && none && !mayHaveZones(set) {
		session.Cloud.SkipZones()
	}
}

// mayHaveZones reports whether the manifests ask for DNS records or for a hosted zone.
func mayHaveZones(set manifest.Set) bool {
	return manifest.HasDNS(set.Cluster.Spec) || model.UsesEtcdDNS(set.Cluster.Spec)
}

// findFunction lets the session's cloud read the function that keeps DNS records, and the topic that triggers it, if the
// cluster has them or may have them: by its manifests, or by what was applied last.
func findFunction(ctx context.Context, session *Session, s store.Store, set manifest.Set) {
	isLost := set.Cluster.Kind == ""
	findsFunction := isLost || model.UsesEtcdDNS(set.Cluster.Spec)
	findsTopic := isLost || model.UsesEtcdTopic(set.Cluster.Spec)

	if !findsFunction || !findsTopic {
		applied, _, err := clusterstate.ReadLastApplied(ctx, s, session.Name)
		if err == nil { // else the next apply overwrites it
			findsFunction = findsFunction || hadFunction(applied, session.Name)
			findsTopic = findsTopic || hadTopic(applied)
		}
	}

	if findsFunction {
		session.Cloud.FindFunction(model.FunctionName(session.Name), !isLost)
	}

	if findsTopic {
		session.Cloud.FindTopic(model.FunctionName(session.Name), !isLost)
	}
}

// hadFunction reports whether the last apply of a cluster, or an attempt of one since then, created a function.
func hadFunction(applied plan.LastApplied, name string) bool {
	isCode := func(key string) bool { return strings.HasPrefix(key, node.FunctionPrefix(name)) }

	return slices.ContainsFunc(applied.Objects, isCode) || usesEvents(applied.Attempted, model.UsesEtcdDNS)
}

// hadTopic reports whether the last apply, or an attempt of one since then, created a topic that triggers the function.
func hadTopic(applied plan.LastApplied) bool {
	return usesEvents(applied.Manifests, model.UsesEtcdTopic) || usesEvents(applied.Attempted, model.UsesEtcdTopic)
}

// usesEvents reports whether recorded manifests use something. Manifests that are not valid were never applied.
func usesEvents(manifests string, uses func(v1alpha1.ClusterSpec) bool) bool {
	set, _ := manifest.Parse([]byte(manifests))

	return manifests != "" && uses(set.Cluster.Spec)
}

// ensureLock is called before each AWS call that may change something.
func (session *Session) ensureLock(ctx context.Context) error {
	if session.Operation == nil {
		return nil
	}

	return session.Operation.EnsureHeld(ctx)
}

// addRecordZones tells the session's cloud where the cluster may have DNS records: in the existing zones of
// the manifest and in those that earlier manifests named.
func (session *Session) addRecordZones(
	ctx context.Context,
	s store.Store,
	set manifest.Set,
) {
	session.Cloud.AddRecordZones(model.UnmanagedZones(set.Cluster.Spec)...)
	zones, _, err := clusterstate.ReadZones(ctx, s, session.Name)
	if err == nil { // else the next apply overwrites the list
		session.Cloud.AddRecordZones(zones...)
	}
}

// Walk executes a plan on a cloud, shows its progress, and notes the finished steps in the record of the
// operation.
func (session *Session) Walk(ctx context.Context, p plan.Plan, cloud plan.Cloud) error {
	show := session.Env.StartProgress()
	done := 0
	events := func(e plan.Event) {
		if e.State == plan.Done {
			done++
		}

		show.OnEvent(e)
	}

	if err := session.MarkOwnership(ctx); err != nil {
		return err
	}

	err := plan.Applier{
		Cloud:            cloud,
		Now:              session.Env.Now,
		Jitter:           rand.Float64,
		OnEvent:          events,
		ProgressInterval: show.Interval,
		OnApplied:        session.recorder.add,
	}.Apply(ctx, p)

	show.End()
	if session.Operation != nil {
		session.Operation.UpdateRecord(func(r *operation.Record) {
			r.CompletedSteps, r.Calls = done, session.Env.Calls.Calls()
			_, r.MutatingCalls = session.Env.Calls.TotalCalls()
		})
	}

	return err
}
