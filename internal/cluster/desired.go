// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/cost"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Desired is what a cluster's manifests ask for. All of it is computed and nothing is written.
type Desired struct {
	// Manifests of the cluster, with defaults. A caller may replace them before the graph is built.
	Manifests manifest.Set
	// View is a snapshot of the cluster's part of the state store.
	View *store.View
	// MachineStore is what machines read. Until ResolveMachineStore it is the state store.
	MachineStore store.Store
	// MachineSealer seals secrets in the machine store.
	MachineSealer store.Sealer
	// MachineObjects are the agent and the node documents, set by BuildGraph.
	MachineObjects []node.Object
	// Graph of the resources in AWS, set by BuildGraph.
	Graph *graph.Graph
	// Plan that makes AWS match the graph, set by ComputePlan.
	Plan plan.Plan
	// External is what AWS has of the resources that the manifest names by id. Nil: not read yet.
	External *unmanaged.Facts
	// Images by group. Nil: not resolved yet.
	Images map[string]model.Image
	// ForStack is set if the graph is for a CloudFormation stack, which waits for signals of the machines.
	ForStack bool
	// ForTerraform is set if the graph is for a Terraform configuration: the state store does not know what exists.
	ForTerraform bool
	// documents are the SHA-256 of the node documents by role and group, set by BuildGraph.
	documents map[v1alpha1.Role]map[string]string
	// revisions that were read or written, by role.
	revisions map[v1alpha1.Role]publishedRevisions
	// launches are what Karpenter is to launch machines with, by group, set by BuildGraph.
	launches map[string]node.Pool
	// publishedLaunches are those that were read or written. Nil: not read yet.
	publishedLaunches *publishedLaunches
	// Unpublished are the sorted keys of the objects that the machine store lacks or that are out of
	// date there, set by BuildGraph. Documents of the issuer of service-account tokens have a URL instead of a key.
	Unpublished []string
	// Unsigned are the documents that have no signature and that an apply signs, by key, set by CheckTrust. Nil: they are
	// signed.
	Unsigned []plan.UnsignedDocument
	// issuer has the documents of the issuer of service-account tokens, set by BuildGraph. Zero: none.
	issuer issuerDocuments
	// signed are the documents in the state store as they were signed, set by Load. Zero: they are not.
	signed clusterstate.Signed
	// sealsKeys is set if publishing seals keys for machines, set by BuildGraph.
	sealsKeys bool
	// unpinned is why the plan creates lost volumes and changes nothing else, set by ComputeVolumeRepair. Nil: it does not.
	unpinned error
}

// Load reads the manifests of a cluster. A missing cluster is an error that wraps [store.ErrNotFound];
// invalid manifests are one of type [diag.Findings].
func Load(ctx context.Context, env *Env, name string) (*Desired, error) {
	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	if err := clusterstate.CheckName(name); err != nil {
		return nil, err
	}

	d := &Desired{MachineStore: s, MachineSealer: sealer}
	if d.View, err = store.OpenView(ctx, s, name+"/"); err != nil {
		return nil, err
	}

	if d.Manifests, err = clusterstate.LoadManifests(ctx, d.View, name); err != nil {
		return d, err
	}

	d.signed, err = clusterstate.VerifyDocuments(ctx, d.View, name)

	return d, err
}

// Name returns the name of the cluster.
func (d *Desired) Name() string { return d.Manifests.Cluster.Metadata.Name }

// Review returns what an apply of d does, for approval.
func (d *Desired) Review() Review {
	return Review{
		Kind:        ReviewApply,
		Cluster:     d.Name(),
		Plan:        d.Plan,
		Unpublished: d.Unpublished,
		Unsigned:    d.Unsigned,
		Cost: cost.Estimate(cost.ListPrices(), d.Manifests.Cluster.Spec.CloudProvider.AWS.Region, cost.Resources{
			Existing: d.Plan.ExistingResources(),
			Desired:  d.Plan.Desired(),
		}),
	}
}

// OpenSession opens the session of the cluster that d describes, in the region of its manifest.
func (d *Desired) OpenSession(ctx context.Context, env *Env) (*Session, error) {
	return Open(ctx, env, d.Name(), d.Manifests.Cluster.Spec.CloudProvider.AWS.Region)
}

// ResolveMachineStore opens the store that the cluster's machines read: spec.configStore.base, else the
// state store, which then must be on S3.
func (session *Session) ResolveMachineStore(ctx context.Context, d *Desired) error {
	s, sealer, err := session.Env.OpenMachineStore(ctx, d.Manifests.Cluster, session.Config.Region)
	if err != nil {
		return err
	}

	d.MachineStore = s
	d.MachineSealer = sealer

	return nil
}

// ComputePlan builds the graph of d, reads what exists, and plans the changes. It reports warnings and
// returns the findings that prevent the plan from being applied; d.Plan is set also then. Manifests of d
// need not be those in the state store.
func (session *Session) ComputePlan(
	ctx context.Context,
	d *Desired,
	options PlanOptions,
) (diag.Findings, error) {
	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	if err := session.readOwnership(ctx, d.View); err != nil {
		return nil, err
	}

	var actual []plan.ActualResource // read while the graph is built: neither needs the other
	var readErr error
	session.SkipZonesIfNone(ctx, d.View, d.Manifests)
	session.ownRoles = &roleOwner{read: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(session.ownRoles.read)
		actual, readErr = session.ReadResources(ctx, d.View, d.Manifests)
		session.ownRoles.setFrom(actual)
	})
	err := session.BuildGraph(ctx, d)
	wg.Wait()
	if err := errors.Join(err, readErr); err != nil {
		return nil, err
	}

	if err := session.CheckTrust(ctx, d, actual); err != nil {
		return nil, err
	}

	actual = options.withoutAbsentVolume(actual)
	var findings diag.Findings
	d.Plan, findings = plan.Compute(d.Graph, actual, plan.Options{DestroyData: options.DestroyData})
	findings, err = session.checkPlan(ctx, d, findings, options)
	if err != nil {
		return nil, err
	}

	d.Plan.Steps = session.ExplainSteps(ctx, d, d.Plan.Steps, false)
	limits := session.CheckQuotas(ctx, quota.FilterIncreased(d.QuotaNeeds(), d.Plan), actual)
	findings = append(findings, limits...)
	findings = append(findings, adviseOnTokenSecrets(d.Manifests.Cluster)...)
	if findings.Err() == nil {
		session.Env.Warn(findings)
	}

	return findings, nil
}
