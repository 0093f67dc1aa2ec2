// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// BuildGraph builds the node documents and the graph of resources that refers to them, and finds the
// objects that the machine store lacks. Call ResolveMachineStore first.
func (session *Session) BuildGraph(ctx context.Context, d *Desired) error {
	if err := session.readOwnership(ctx, d.View); err != nil {
		return err
	}

	if err := session.ReadExternalResources(ctx, d); err != nil {
		return err
	}

	if err := session.DescribeInstanceTypes(ctx, d); err != nil {
		return err
	}

	in, publication, err := buildInputs(ctx, session, d)
	if err != nil {
		return err
	}

	code, objects, err := findFunctionCode(session, d)
	if err != nil {
		return err
	}

	in.FunctionCode = code
	d.MachineObjects = slices.Concat(publication.Objects, objects)
	d.documents = publication.Documents
	for group, b := range publication.BootLocations {
		in.Boot[group] = model.BootSource(b)
	}

	keeps, err := session.keepsSharedRole(ctx, d, in)
	if err != nil {
		return err
	}

	in.KeepsSharedRole = keeps
	launches := NewLaunchPublisher(session, d)
	former, err := launches.read(ctx)
	if err != nil {
		return err
	}

	in.KarpenterImages = former.Images()
	if in.KeepsKarpenter, err = launches.keepsKarpenter(ctx, former); err != nil {
		return err
	}

	var findings diag.Findings
	d.Graph, findings = model.Build(in)
	if err := findings.Err(); err != nil {
		return err
	}

	d.launches = karpenterPools(d.Manifests, model.KarpenterLaunches(in))

	return findAllUnpublished(ctx, session, d)
}

// buildInputs builds, at the same time, the input of the model and the node documents.
func buildInputs(ctx context.Context, session *Session, d *Desired) (model.Input, node.Publication, error) {
	var in model.Input
	var publication node.Publication
	var inErr, pubErr error
	var wg sync.WaitGroup
	wg.Go(func() { in, inErr = session.buildModelInput(ctx, d) })
	wg.Go(func() {
		if d.RepairsVolumesOnly() {
			publication = withoutDocuments(d.Manifests.Groups)
			return
		}

		publication, pubErr = session.buildPublication(ctx, d.View, d)
	})
	wg.Wait()

	return in, publication, errors.Join(inErr, pubErr)
}

// findAllUnpublished finds what the stores that machines and others read lack. The creation of lost volumes publishes nothing.
func findAllUnpublished(ctx context.Context, session *Session, d *Desired) error {
	if d.RepairsVolumesOnly() {
		d.MachineObjects = nil
		return nil
	}

	if err := d.findUnpublished(ctx, session.Name); err != nil {
		return err
	}

	if err := session.findUnpublishedRevisions(ctx, d); err != nil {
		return err
	}

	if err := NewLaunchPublisher(session, d).addUnpublished(ctx); err != nil {
		return err
	}

	return session.findUnpublishedIssuerDocuments(ctx, d)
}

// findUnpublished sets d.Unpublished.
func (d *Desired) findUnpublished(ctx context.Context, name string) error {
	objects, err := node.MissingObjects(ctx, d.publishedStore(), d.MachineObjects)
	if err != nil {
		return err
	}

	for _, o := range objects {
		d.Unpublished = append(d.Unpublished, o.Key)
	}

	secrets, err := pki.ListUnpublishedKeys(ctx, d.publishedStore(), name)
	d.sealsKeys = len(secrets) > 0
	d.Unpublished = append(d.Unpublished, secrets...)
	slices.Sort(d.Unpublished)

	return err
}

// listedStore is a store whose objects were listed before.
type listedStore struct {
	store.Store
	view *store.View
}

// List implements [store.Store] without a request.
func (s listedStore) List(ctx context.Context, prefix string) ([]string, error) {
	return s.view.List(ctx, prefix)
}

// ListedMachineStore returns the machine store. If the view is of the same store, the objects are not listed
// again.
func (d *Desired) ListedMachineStore() store.Store {
	if d.MachineStore.URL() == d.View.URL() {
		return listedStore{d.MachineStore, d.View}
	}

	return d.MachineStore
}

// machineStoreKey returns the key in the bucket of an object of the machine store.
func (d *Desired) machineStoreKey(key string) (string, error) {
	place, err := store.ParseURL(d.MachineStore.URL())
	if err != nil {
		return "", err
	}

	return strings.TrimPrefix(place.Prefix+"/", "/") + key, nil
}

// publishedStore returns the store to look up published objects in: the view if it is of the machine store,
// else the machine store.
func (d *Desired) publishedStore() store.Store {
	if d.MachineStore.URL() == d.View.URL() {
		return d.View
	}

	return d.MachineStore
}

// buildModelInput collects the input of the model, except where machines boot from.
func (session *Session) buildModelInput(ctx context.Context, d *Desired) (model.Input, error) {
	var images map[string]model.Image
	var imagesErr error
	var wg sync.WaitGroup
	wg.Go(func() { images, imagesErr = session.ResolveImages(ctx, d) })
	who, err := session.accountIdentity(ctx)
	wg.Wait()
	if err != nil {
		return model.Input{}, err // without an identity nothing else works either
	}

	place, err := store.ParseURL(d.MachineStore.URL())
	if err != nil {
		return model.Input{}, err
	}

	settings, err := readStoreSettings(ctx, d.MachineStore)
	if err != nil {
		return model.Input{}, err
	}

	return model.Input{
		Cluster:     d.machineCluster(),
		ClusterID:   session.ownership.ID,
		Groups:      d.Manifests.Groups,
		Account:     who.Account,
		Region:      session.Config.Region,
		Partition:   who.Partition,
		Images:      images,
		Boot:        map[string]model.BootSource{},
		BootScript:  node.BootScript(session.Config.Region),
		SignalStack: d.ForStack,
		MachineStore: model.MachineStore{
			Bucket:    place.Bucket,
			Prefix:    place.Prefix,
			Owner:     storeOwner(d.MachineStore),
			KMSKeyARN: settings.KMSKeyARN,
			Boundary:  settings.MachineBoundaryARN,
		},
	}, imagesErr
}

// storeOwner returns the account that must own the bucket of the store; empty: any.
func storeOwner(s store.Store) string {
	if owned, ok := s.(interface{ Owner() string }); ok {
		return owned.Owner()
	}

	return ""
}

// readStoreSettings returns the settings of the store, which need no call if the store has read them before.
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

// machineCluster returns the cluster as its machines see it. In a Terraform configuration machines create no lost volumes:
// Terraform's state would not have the new one, so the next 'terraform apply' would create another.
func (d *Desired) machineCluster() v1alpha1.Cluster {
	c := d.Manifests.Cluster
	if d.ForTerraform {
		c.Spec.Etcd.RecreateVolumesAfter = v1alpha1.RecreateVolumesNever
	}

	return c
}

// LoadGraph loads the manifests of a cluster and builds its graph for a template. forStack prepares it for a
// CloudFormation stack, else it is for Terraform.
func LoadGraph(ctx context.Context, env *Env, name string, forStack bool) (*Session, *Desired, error) {
	d, err := Load(ctx, env, name)
	if err != nil {
		return nil, nil, err
	}

	d.ForStack = forStack
	d.ForTerraform = !forStack
	session, err := d.OpenSession(ctx, env)
	if err != nil {
		return nil, nil, err
	}

	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, nil, err
	}

	if err := session.BuildGraph(ctx, d); err != nil {
		return session, d, err
	}

	return session, d, session.CheckTrust(ctx, d, nil)
}
