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
	"github.com/slipway-k8s/slipway/internal/cluster/existing"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/quota"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// targetOptions are the flags of commands that compare a cluster with AWS.
type targetOptions struct {
	name        string
	nodeBinary  string
	verbose     bool
	destroyData bool
	// via is how resources are made; empty: as the cluster was made.
	via   string
	stack stackOptions
}

func targetFlags(cmd *cobra.Command, o *targetOptions) {
	nameFlag(cmd, &o.name)
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print which calls were made to AWS, how many were repeated and why, and how long they waited")
}

func buildFlags(cmd *cobra.Command, o *targetOptions) {
	cmd.Flags().StringVar(&o.nodeBinary, "node-binary", "", "the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node beside slipway)")
	cmd.Flags().StringVar(&o.via, "via", "", "how resources are made: direct, or cloudformation (default: as the cluster was made, else direct)")
	cmd.Flags().StringArrayVar(&o.stack.parameters, "parameter", nil, "with CloudFormation: NAME=VALUE of a parameter of the template; may be repeated")
	cmd.Flags().BoolVar(&o.stack.reset, "reset-parameters", false, "with CloudFormation: take the manifest's values, also of parameters that were set in the console")
	cmd.Flags().BoolVar(&o.destroyData, "destroy-data", false, "allow to destroy volumes and keys that the manifests no longer have")
}

// target is one cluster's place in AWS.
type target struct {
	a     *app
	o     targetOptions
	name  string
	cfg   sdk.Config
	cloud *aws.Cloud
	// op is the operation under which AWS is changed; nil while it is only read.
	op    *operation.Op
	state store.Store // guarded by op
	made  madeResources
	last  lastApplied
	who   aws.Identity // once it was asked for
}

// whoAmI asks AWS once whose credentials we have.
func (t *target) whoAmI(ctx context.Context) (aws.Identity, error) {
	if t.who.ARN != "" {
		return t.who, nil
	}
	who, err := aws.WhoAmI(ctx, t.cfg)
	if err != nil {
		return who, withHint(err, "check the credentials: aws sts get-caller-identity; for the local region: eval \"$(slipway region env)\"")
	}
	t.who = who
	return who, nil
}

// mayChange is asked before each call that may change something in AWS.
func (t *target) mayChange(ctx context.Context) error {
	if t.op == nil {
		return nil
	}
	return t.op.Ensure(ctx)
}

// newTarget finds AWS. A cluster's manifest says its region; where it is gone from the state, wantRegion is empty.
func (a *app) newTarget(ctx context.Context, o targetOptions, name, wantRegion string) (*target, error) {
	if a.region == "" {
		a.region = wantRegion
	}
	if wantRegion != "" && a.region != wantRegion {
		return nil, withHint(fmt.Errorf("cluster %s is in %s, not in %s", name, wantRegion, a.region), "leave --region out")
	}
	cfg, err := a.awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	t := &target{a: a, o: o, name: name}
	t.cfg = a.calls.Pace(aws.Gate(cfg, t.mayChange))
	t.cloud = aws.New(t.cfg, aws.Scope{
		Cluster: name, Region: cfg.Region, RolePath: model.RolePath(name, cfg.Region), KeyAlias: model.AliasName(name),
	})
	return t, nil
}

// report prints the calls that were made, if asked to.
func (t *target) report() {
	if !t.o.verbose {
		return
	}
	all, mutating := t.a.calls.Total()
	calls := t.a.calls.Calls()
	names := make([]string, 0, len(calls))
	for c := range calls {
		names = append(names, c)
	}
	slices.Sort(names)
	for _, c := range names {
		fmt.Fprintf(t.a.Stderr, "%5d %s\n", calls[c], c)
	}
	fmt.Fprintf(t.a.Stderr, "%d calls to AWS, %d of which may change something; %s\n", all, mutating, t.a.calls.Stats())
}

// desired is what a cluster's manifests ask for, all of it computed and none of it written.
type desired struct {
	set     manifest.Set
	view    *store.View // of the cluster's part of the state
	machine store.Store
	sealer  store.Sealer
	objects []node.Object
	graph   *graph.Graph
	plan    plan.Plan
	// facts are about what the manifest names and slipway does not make; nil until AWS was asked.
	facts *existing.Facts
	// images of the groups; nil until AWS was asked.
	images map[string]model.Image
	// stack says that the graph is for a CloudFormation stack, whose machines signal.
	stack bool
	// missing are the keys that the machine store lacks.
	missing []string
	// destroy says that all of it is to go, as demise says; known that the state has it.
	destroy, known bool
	demise         demise
}

// empty says that there is nothing to do.
func (d *desired) empty() bool {
	n := len(d.missing)
	for _, l := range d.demise.objects {
		n += len(l.keys)
	}
	return d.plan.Empty() && n == 0
}

// nothing says that there is no such cluster to destroy.
func (d *desired) nothing() bool {
	return d.destroy && !d.known && len(d.demise.kept) == 0 && d.empty()
}

// prepare computes a cluster's graph and compares it with AWS. For a cluster that CloudFormation makes, its error is a
// [stackMadeError].
func (a *app) prepare(ctx context.Context, name string, o targetOptions) (*target, *desired, error) {
	d, err := a.load(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if d.stack, err = byStack(ctx, d.view, name, o.via); err != nil {
		return nil, nil, err
	}
	if d.stack {
		return nil, nil, stackMadeError{d}
	}
	return a.prepareLoaded(ctx, d, o)
}

// prepareLoaded does so for manifests that were loaded; they need not be those of the state any more.
func (a *app) prepareLoaded(ctx context.Context, d *desired, o targetOptions) (*target, *desired, error) {
	t, err := a.newTarget(ctx, o, d.set.Cluster.Metadata.Name, d.set.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, nil, err
	}
	if err := a.settle(ctx, d); err != nil {
		return nil, nil, err
	}
	var have []plan.Actual // what exists is read while the graph is made: neither needs the other
	var haveErr error
	var wg sync.WaitGroup
	wg.Go(func() { have, haveErr = t.lookIn(ctx, d.view, d.set).Read(ctx) })
	err = t.build(ctx, d)
	wg.Wait()
	if err := errors.Join(err, haveErr); err != nil {
		return nil, nil, err
	}
	var findings diag.Findings
	d.plan, findings = plan.Make(d.graph, have, plan.Options{DestroyData: o.destroyData})
	limits := t.checkQuotas(ctx, quota.Touched(d.quotaNeeds(), d.plan))
	if limits.Err() == nil {
		t.a.printFindings(limits) // warnings
	}
	return t, d, append(findings, limits...).Err()
}

// load reads a cluster's manifests.
func (a *app) load(ctx context.Context, name string) (*desired, error) {
	s, sealer, err := a.openStore(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	d := &desired{machine: s, sealer: sealer, known: true}
	if d.view, err = store.Look(ctx, s, name+"/"); err != nil {
		return nil, err
	}
	d.set, err = a.loadCluster(ctx, d.view, name)
	return d, err
}

// settle finds the store that the cluster's machines read: the state store, unless the manifest names another.
func (a *app) settle(ctx context.Context, d *desired) error {
	var err error
	d.machine, d.sealer, err = a.machineStoreOf(ctx, d.set, d.machine, d.sealer)
	return err
}

// published is where what machines read is looked up: in the view, where it is of the same store.
func (d *desired) published() store.Store {
	if d.machine.URL() == d.view.URL() {
		return d.view
	}
	return d.machine
}

// build makes the node documents, and the graph that refers to them.
func (t *target) build(ctx context.Context, d *desired) error {
	if err := t.findExisting(ctx, d); err != nil {
		return err
	}
	var in model.Input
	var publication node.Publication
	var inErr, pubErr error
	var wg sync.WaitGroup
	wg.Go(func() { in, inErr = t.input(ctx, d) })
	wg.Go(func() { publication, pubErr = t.publication(ctx, d.view, d) })
	wg.Wait()
	if err := errors.Join(inErr, pubErr); err != nil {
		return err
	}
	d.objects = publication.Objects
	for group, b := range publication.Boot {
		in.Boot[group] = model.Boot(b)
	}
	var findings diag.Findings
	d.graph, findings = model.Build(in)
	if err := findings.Err(); err != nil {
		return err
	}
	return d.findMissing(ctx, t.name)
}

func (d *desired) findMissing(ctx context.Context, name string) error {
	objects, err := node.Missing(ctx, d.published(), d.objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		d.missing = append(d.missing, o.Key)
	}
	secrets, err := pki.Unpublished(ctx, d.published(), name)
	d.missing = append(d.missing, secrets...)
	slices.Sort(d.missing)
	return err
}

// input is what the model needs beside the node documents.
func (t *target) input(ctx context.Context, d *desired) (model.Input, error) {
	var images map[string]model.Image
	var imagesErr error
	var wg sync.WaitGroup
	wg.Go(func() { images, imagesErr = t.images(ctx, d) })
	who, err := t.whoAmI(ctx)
	wg.Wait()
	if err != nil {
		return model.Input{}, err // without an identity nothing else works either
	}
	place, err := store.ParseURL(d.machine.URL())
	if err != nil {
		return model.Input{}, err
	}
	settings, err := settingsOf(ctx, d.machine)
	if err != nil {
		return model.Input{}, err
	}
	return model.Input{
		Cluster: d.set.Cluster, Groups: d.set.Groups, Account: who.Account, Region: t.cfg.Region, Partition: who.Partition,
		Images: images, Boot: map[string]model.Boot{}, BootScript: node.BootScript(), Signals: d.stack,
		MachineStore: model.MachineStore{Bucket: place.Bucket, Prefix: place.Prefix, KMSKeyARN: settings.KMSKeyARN},
	}, imagesErr
}

func settingsOf(ctx context.Context, s store.Store) (store.Settings, error) {
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

// images finds, once, each group's image, and checks that its machines can run it.
func (t *target) images(ctx context.Context, d *desired) (map[string]model.Image, error) {
	if d.images != nil {
		return d.images, nil
	}
	want := map[string]aws.Wanted{}
	path := func(g v1alpha1.InstanceGroup) string { return "instancegroup/" + g.Metadata.Name + ": spec.image" }
	for _, g := range d.set.Groups {
		want[path(g)] = aws.Wanted{Name: g.Spec.Image, Arch: manifest.ArchOf(g.Spec.MachineType)}
	}
	found, findings, err := aws.Images(ctx, t.cfg, want, t.a.Now())
	if err != nil {
		return nil, err
	}
	out := map[string]model.Image{}
	for _, g := range d.set.Groups {
		image := found[path(g)]
		if arch := manifest.ArchOf(g.Spec.MachineType); image.ID != "" && image.Arch != arch {
			findings.Errorf(path(g), g.Spec.Image, "name an image or a machine type of the same architecture",
				"is for %s, but %s is %s", image.Arch, g.Spec.MachineType, arch)
		}
		if strings.Contains(g.Spec.Image, "*") && image.ID != "" {
			t.a.say("%s %s is %s, %s: the newest there is", path(g), g.Spec.Image, image.ID, image.Name)
		}
		out[g.Metadata.Name] = model.Image{ID: image.ID, RootDevice: image.RootDevice}
	}
	if err := findings.Err(); err != nil {
		return out, err
	}
	t.a.printFindings(findings) // warnings
	d.images = out
	return out, nil
}

// publication makes the node document of each group, and says where it and the agent will lie.
func (t *target) publication(ctx context.Context, s store.Store, d *desired) (node.Publication, error) {
	catalog, err := pinnedCatalog(ctx, s, t.name)
	if err != nil {
		return node.Publication{}, err
	}
	if repo := d.set.Cluster.Spec.Assets.FileRepository; repo != "" {
		catalog.FileRepository = repo
	}
	if registry := d.set.Cluster.Spec.Assets.ContainerRegistry; registry != "" {
		catalog.ContainerRegistry = registry
	}
	public, err := pki.LoadPublic(ctx, s, t.name)
	if err != nil {
		return node.Publication{}, err
	}
	in := node.PublicationInput{Arch: map[string]string{}, StoreURL: d.machine.URL()}
	roles := t.workerRoles(d)
	for _, g := range d.set.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue // it runs no agent
		}
		arch := manifest.ArchOf(g.Spec.MachineType)
		files, images, err := node.ResolveAssets(catalog, g.Spec.Role, d.set.Cluster.Spec.KubernetesVersion, arch)
		if err != nil {
			return node.Publication{}, fmt.Errorf("instancegroup/%s: %w", g.Metadata.Name, err)
		}
		doc, err := node.BuildDocument(node.DocumentInput{
			Cluster: d.set.Cluster, Groups: d.set.Groups, Group: g, Files: files, Images: images, Trust: trust(public),
			StoreURL: d.machine.URL(), WorkerRoles: roles,
		})
		if err != nil {
			return node.Publication{}, err
		}
		in.Documents = append(in.Documents, doc)
		in.Arch[g.Metadata.Name] = arch
	}
	if in.Agents, err = t.agents(in.Arch); err != nil {
		return node.Publication{}, err
	}
	return node.BuildPublication(in)
}

func trust(p pki.Public) node.Trust {
	return node.Trust{
		KubernetesCA: p.CAs[pki.KubernetesCA], EtcdPeerCA: p.CAs[pki.EtcdPeerCA], EtcdClientCA: p.CAs[pki.EtcdClientCA],
		FrontProxyCA: p.CAs[pki.FrontProxyCA], ServiceAccountKeys: p.ServiceAccountKeys,
	}
}
