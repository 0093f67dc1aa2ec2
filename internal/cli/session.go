// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// clusterOptions are the flags of commands that compare a cluster with AWS.
type clusterOptions struct {
	name        string
	nodeBinary  string
	verbose     bool
	destroyData bool
	// provisioner is how resources are made; empty: as the cluster was made.
	provisioner string
	stack       stackOptions
}

func addClusterFlags(cmd *cobra.Command, o *clusterOptions) {
	addNameFlag(cmd, &o.name)
	cmd.Flags().BoolVarP(
		&o.verbose,
		"verbose",
		"v",
		false,
		"print the calls to AWS, the retries with their causes, and the time waited",
	)
}

func addBuildFlags(cmd *cobra.Command, o *clusterOptions) {
	cmd.Flags().StringVar(
		&o.nodeBinary,
		"node-binary",
		"",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)",
	)

	cmd.Flags().StringVar(
		&o.provisioner,
		"via",
		"",
		"provisioner: direct or cloudformation (default: the cluster's own, or direct for a new cluster)",
	)

	cmd.Flags().StringArrayVar(
		&o.stack.parameters,
		"parameter",
		nil,
		"with CloudFormation: NAME=VALUE of a template parameter; repeatable",
	)

	cmd.Flags().BoolVar(
		&o.stack.resetParameters,
		"reset-parameters",
		false,
		"with CloudFormation: use the manifest's values, also for parameters that were set in the console",
	)

	cmd.Flags().BoolVar(
		&o.destroyData,
		"destroy-data",
		false,
		"allow the deletion of volumes and keys that are no longer in the manifests",
	)
}

// clusterSession is one cluster's place in AWS.
type clusterSession struct {
	app     *app
	options clusterOptions
	name    string
	cfg     sdk.Config
	cloud   *aws.Cloud
	// operation is the operation under which AWS is changed; nil while it is only read.
	operation      *operation.Operation
	guardedState   store.Store // guarded by op
	recorder       resourceRecorder
	lastApplied    lastAppliedRecord
	cachedIdentity discovery.Identity // once it was asked for
}

// callerIdentity asks AWS once whose credentials we have.
func (t *clusterSession) callerIdentity(ctx context.Context) (discovery.Identity, error) {
	if t.cachedIdentity.ARN != "" {
		return t.cachedIdentity, nil
	}

	who, err := discovery.GetCallerIdentity(ctx, t.cfg)
	if err != nil {
		return who, withHint(
			err,
			"check the credentials: aws sts get-caller-identity; for the local region: eval \"$(slipway region env)\"",
		)
	}

	t.cachedIdentity = who

	return who, nil
}

// ensureLock is asked before each call that may change something in AWS.
func (t *clusterSession) ensureLock(ctx context.Context) error {
	if t.operation == nil {
		return nil
	}

	return t.operation.EnsureHeld(ctx)
}

// newClusterSession finds AWS. A cluster's manifest says its region; where it is gone from the state, wantRegion is empty.
func (a *app) newClusterSession(
	ctx context.Context,
	o clusterOptions,
	name, wantRegion string,
) (*clusterSession, error) {
	if a.region == "" {
		a.region = wantRegion
	}

	if wantRegion != "" && a.region != wantRegion {
		return nil, withHint(
			fmt.Errorf("cluster %s is in %s, not in %s", name, wantRegion, a.region),
			"leave --region out",
		)
	}

	cfg, err := a.awsConfig(ctx)
	if err != nil {
		return nil, err
	}

	t := &clusterSession{app: a, options: o, name: name}
	t.cfg = a.calls.PaceCalls(transport.GateChanges(cfg, t.ensureLock))
	t.cloud = aws.New(t.cfg, aws.Scope{
		Cluster:  name,
		Region:   cfg.Region,
		RolePath: model.RolePath(name, cfg.Region),
		KeyAlias: model.KeyAliasName(name),
	})

	return t, nil
}

// printCalls prints the calls that were made, if asked to.
func (t *clusterSession) printCalls() {
	if !t.options.verbose {
		return
	}

	all, mutating := t.app.calls.TotalCalls()
	calls := t.app.calls.Calls()
	names := make([]string, 0, len(calls))
	for c := range calls {
		names = append(names, c)
	}

	slices.Sort(names)
	for _, c := range names {
		fmt.Fprintf(t.app.Stderr, "%5d %s\n", calls[c], c)
	}

	fmt.Fprintf(
		t.app.Stderr,
		"%d calls to AWS, %d of which may change something; %s\n",
		all,
		mutating,
		t.app.calls.Stats(),
	)
}

// desiredState is what a cluster's manifests ask for, all of it computed and none of it written.
type desiredState struct {
	manifests      manifest.Set
	stateView      *store.View // of the cluster's part of the state
	machineStore   store.Store
	machineSealer  store.Sealer
	machineObjects []node.Object
	graph          *graph.Graph
	plan           plan.Plan
	// external are about what the manifest names and slipway does not make; nil until AWS was asked.
	external *unmanaged.Facts
	// images of the groups; nil until AWS was asked.
	images map[string]model.Image
	// forStack says that the graph is for a CloudFormation stack, whose machines signal.
	forStack bool
	// unpublished are the keys that the machine store lacks.
	unpublished []string
	// destroy says that all of it is to go, as demise says; known that the state has it.
	destroy, inState bool
	deletion         deletionSet
}

// isEmpty says that there is nothing to do.
func (d *desiredState) isEmpty() bool {
	n := len(d.unpublished)
	for _, l := range d.deletion.objects {
		n += len(l.keys)
	}

	return d.plan.IsEmpty() && n == 0
}

// nothingToDestroy says that there is no such cluster to destroy.
func (d *desiredState) nothingToDestroy() bool {
	return d.destroy && !d.inState && len(d.deletion.retained) == 0 && d.isEmpty()
}

// planCluster computes a cluster's graph and compares it with AWS. For a cluster that CloudFormation makes, its error is a
// [stackManagedError].
func (a *app) planCluster(
	ctx context.Context,
	name string,
	o clusterOptions,
) (*clusterSession, *desiredState, error) {
	d, err := a.loadDesiredState(ctx, name)
	if err != nil {
		return nil, nil, err
	}

	if d.forStack, err = usesStack(ctx, d.stateView, name, o.provisioner); err != nil {
		return nil, nil, err
	}

	if d.forStack {
		return nil, nil, stackManagedError{d}
	}

	return a.planLoaded(ctx, d, o)
}

// planLoaded does so for manifests that were loaded; they need not be those of the state any more.
func (a *app) planLoaded(
	ctx context.Context,
	d *desiredState,
	o clusterOptions,
) (*clusterSession, *desiredState, error) {
	t, err := a.newClusterSession(
		ctx,
		o,
		d.manifests.Cluster.Metadata.Name,
		d.manifests.Cluster.Spec.CloudProvider.AWS.Region,
	)
	if err != nil {
		return nil, nil, err
	}

	if err := a.resolveMachineStore(ctx, d); err != nil {
		return nil, nil, err
	}

	var have []plan.ActualResource // what exists is read while the graph is made: neither needs the other
	var haveErr error
	var wg sync.WaitGroup
	wg.Go(func() { have, haveErr = t.withRecordZones(ctx, d.stateView, d.manifests).Read(ctx) })
	err = t.buildGraph(ctx, d)
	wg.Wait()
	if err := errors.Join(err, haveErr); err != nil {
		return nil, nil, err
	}

	var findings diag.Findings
	d.plan, findings = plan.Compute(d.graph, have, plan.Options{DestroyData: o.destroyData})
	limits := t.checkQuotas(ctx, quota.FilterIncreased(d.quotaNeeds(), d.plan))
	if limits.Err() == nil {
		t.app.printFindings(limits) // warnings
	}

	return t, d, append(findings, limits...).Err()
}

// loadDesiredState reads a cluster's manifests.
func (a *app) loadDesiredState(ctx context.Context, name string) (*desiredState, error) {
	s, sealer, err := a.openStore(ctx)
	if err != nil {
		return nil, err
	}

	if err := checkName(name); err != nil {
		return nil, err
	}

	d := &desiredState{machineStore: s, machineSealer: sealer, inState: true}
	if d.stateView, err = store.OpenView(ctx, s, name+"/"); err != nil {
		return nil, err
	}

	d.manifests, err = a.loadManifests(ctx, d.stateView, name)

	return d, err
}

// resolveMachineStore finds the store that the cluster's machines read: the state store, unless the manifest names another.
func (a *app) resolveMachineStore(ctx context.Context, d *desiredState) error {
	var err error
	d.machineStore, d.machineSealer, err = a.selectMachineStore(
		ctx,
		d.manifests,
		d.machineStore,
		d.machineSealer,
	)

	return err
}

// publishedStore is where what machines read is looked up: in the view, where it is of the same store.
func (d *desiredState) publishedStore() store.Store {
	if d.machineStore.URL() == d.stateView.URL() {
		return d.stateView
	}

	return d.machineStore
}

// buildGraph makes the node documents, and the graph that refers to them.
func (t *clusterSession) buildGraph(ctx context.Context, d *desiredState) error {
	if err := t.readExternalResources(ctx, d); err != nil {
		return err
	}

	var in model.Input
	var publication node.Publication
	var inErr, pubErr error
	var wg sync.WaitGroup
	wg.Go(func() { in, inErr = t.buildModelInput(ctx, d) })
	wg.Go(func() { publication, pubErr = t.buildPublication(ctx, d.stateView, d) })
	wg.Wait()
	if err := errors.Join(inErr, pubErr); err != nil {
		return err
	}

	d.machineObjects = publication.Objects
	for group, b := range publication.BootLocations {
		in.Boot[group] = model.BootSource(b)
	}

	var findings diag.Findings
	d.graph, findings = model.Build(in)
	if err := findings.Err(); err != nil {
		return err
	}

	return d.findUnpublished(ctx, t.name)
}

func (d *desiredState) findUnpublished(ctx context.Context, name string) error {
	objects, err := node.MissingObjects(ctx, d.publishedStore(), d.machineObjects)
	if err != nil {
		return err
	}

	for _, o := range objects {
		d.unpublished = append(d.unpublished, o.Key)
	}

	secrets, err := pki.ListUnpublishedKeys(ctx, d.publishedStore(), name)
	d.unpublished = append(d.unpublished, secrets...)
	slices.Sort(d.unpublished)

	return err
}

// buildModelInput is what the model needs beside the node documents.
func (t *clusterSession) buildModelInput(ctx context.Context, d *desiredState) (model.Input, error) {
	var images map[string]model.Image
	var imagesErr error
	var wg sync.WaitGroup
	wg.Go(func() { images, imagesErr = t.resolveImages(ctx, d) })
	who, err := t.callerIdentity(ctx)
	wg.Wait()
	if err != nil {
		return model.Input{}, err // without an identity nothing else works either
	}

	place, err := store.ParseURL(d.machineStore.URL())
	if err != nil {
		return model.Input{}, err
	}

	settings, err := readStoreSettings(ctx, d.machineStore)
	if err != nil {
		return model.Input{}, err
	}

	return model.Input{
		Cluster:     d.manifests.Cluster,
		Groups:      d.manifests.Groups,
		Account:     who.Account,
		Region:      t.cfg.Region,
		Partition:   who.Partition,
		Images:      images,
		Boot:        map[string]model.BootSource{},
		BootScript:  node.BootScript(),
		SignalStack: d.forStack,
		MachineStore: model.MachineStore{
			Bucket:    place.Bucket,
			Prefix:    place.Prefix,
			KMSKeyARN: settings.KMSKeyARN,
		},
	}, imagesErr
}

func readStoreSettings(ctx context.Context, s store.Store) (store.Settings, error) {
	if read, ok := s.(interface{ Settings() (store.Settings, bool) }); ok {
		if settings, ok := read.Settings(); ok {
			return settings, nil
		}
	}

	o, err := s.Get(ctx, store.SettingsKey)
	if err != nil {
		return store.Settings{}, err
	}

	var settings store.Settings
	if err := json.Unmarshal(o.Body, &settings); err != nil {
		return store.Settings{}, fmt.Errorf("read %s of %s: %w", store.SettingsKey, s.URL(), err)
	}

	return settings, nil
}

// resolveImages finds, once, each group's image, and checks that its machines can run it.
func (t *clusterSession) resolveImages(ctx context.Context, d *desiredState) (map[string]model.Image, error) {
	if d.images != nil {
		return d.images, nil
	}

	want := map[string]discovery.ImageRequest{}
	path := func(g v1alpha1.InstanceGroup) string { return "instancegroup/" + g.Metadata.Name + ": spec.image" }

	for _, g := range d.manifests.Groups {
		want[path(g)] = discovery.ImageRequest{
			Name: g.Spec.Image,
			Arch: manifest.InstanceTypeArch(g.Spec.MachineType),
		}
	}

	found, findings, err := discovery.ResolveImages(ctx, t.cfg, want, t.app.Now())
	if err != nil {
		return nil, err
	}

	out := map[string]model.Image{}

	for _, g := range d.manifests.Groups {
		image := found[path(g)]
		if arch := manifest.InstanceTypeArch(g.Spec.MachineType); image.ID != "" && image.Arch != arch {
			findings.Errorf(path(g), g.Spec.Image, "name an image or a machine type of the same architecture",
				"is for %s, but %s is %s", image.Arch, g.Spec.MachineType, arch)
		}

		if strings.Contains(g.Spec.Image, "*") && image.ID != "" {
			t.app.printMessage(
				"%s %s is %s, %s: the newest there is",
				path(g),
				g.Spec.Image,
				image.ID,
				image.Name,
			)
		}

		out[g.Metadata.Name] = model.Image{ID: image.ID, RootDevice: image.RootDevice}
	}

	if err := findings.Err(); err != nil {
		return out, err
	}

	t.app.printFindings(findings) // warnings
	d.images = out

	return out, nil
}

// buildPublication makes the node document of each group, and says where it and the agent will lie.
func (t *clusterSession) buildPublication(
	ctx context.Context,
	s store.Store,
	d *desiredState,
) (node.Publication, error) {
	catalog, err := readPinnedCatalog(ctx, s, t.name)
	if err != nil {
		return node.Publication{}, err
	}

	if repo := d.manifests.Cluster.Spec.Assets.FileRepository; repo != "" {
		catalog.FileRepository = repo
	}

	if registry := d.manifests.Cluster.Spec.Assets.ContainerRegistry; registry != "" {
		catalog.ContainerRegistry = registry
	}

	public, err := pki.LoadPublicBundle(ctx, s, t.name)
	if err != nil {
		return node.Publication{}, err
	}

	in := node.PublicationInput{Arch: map[string]string{}, StoreURL: d.machineStore.URL()}
	roles := t.workerRolesByGroup(d)

	for _, g := range d.manifests.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue // it runs no agent
		}

		arch := manifest.InstanceTypeArch(g.Spec.MachineType)
		files, images, err := node.ResolveAssets(
			catalog,
			g.Spec.Role,
			d.manifests.Cluster.Spec.KubernetesVersion,
			arch,
		)
		if err != nil {
			return node.Publication{}, fmt.Errorf("instancegroup/%s: %w", g.Metadata.Name, err)
		}

		doc, err := node.BuildDocument(node.DocumentInput{
			Cluster:     d.manifests.Cluster,
			Groups:      d.manifests.Groups,
			Group:       g,
			Files:       files,
			Images:      images,
			Trust:       nodeTrust(public),
			StoreURL:    d.machineStore.URL(),
			WorkerRoles: roles,
		})
		if err != nil {
			return node.Publication{}, err
		}

		in.Documents = append(in.Documents, doc)
		in.Arch[g.Metadata.Name] = arch
	}

	if in.Agents, err = t.findAgents(in.Arch); err != nil {
		return node.Publication{}, err
	}

	return node.BuildPublication(in)
}

func nodeTrust(p pki.PublicBundle) node.TrustBundle {
	return node.TrustBundle{
		KubernetesCA:       p.CAs[pki.KubernetesCA],
		EtcdPeerCA:         p.CAs[pki.EtcdPeerCA],
		EtcdClientCA:       p.CAs[pki.EtcdClientCA],
		FrontProxyCA:       p.CAs[pki.FrontProxyCA],
		ServiceAccountKeys: p.ServiceAccountKeys,
	}
}
