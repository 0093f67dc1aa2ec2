// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Change replaces manifests of a cluster in the state store, unless another process changes them meanwhile.
type Change struct {
	before            manifest.Set
	applied           manifest.Set // see clusterstate.FixedManifests; zero if the cluster was never applied
	etags             map[string]string
	catalog           asset.Catalog
	usesPinnedCatalog bool // catalog is the one in the state store
	prunes            bool // groups that are not given are removed
	signed            clusterstate.Signed
	pinned            []string // images that get digests, one line each
}

// LoadChange reads the manifests of a cluster. They may be invalid: the change may be their correction.
// catalog is the path or URL of another asset catalogue; empty: the one that the cluster is pinned to. Documents that do
// not match their signature are an error, since the change would sign them.
func LoadChange(ctx context.Context, state store.Store, name, catalog string) (Change, error) {
	if err := clusterstate.CheckName(name); err != nil {
		return Change{}, err
	}

	s, err := store.OpenView(ctx, state, name+"/")
	if err != nil {
		return Change{}, err
	}

	signed, err := clusterstate.VerifyDocuments(ctx, s, name)
	if err != nil {
		return Change{}, err
	}

	text, etags, err := clusterstate.ReadDocuments(ctx, s, name)
	if err != nil {
		return Change{}, err
	}

	set, _ := manifest.Parse(text)
	c := Change{
		before:            set,
		etags:             etags,
		usesPinnedCatalog: catalog == "",
		signed:            signed,
	}
	if c.applied, err = clusterstate.ReadFixedManifests(ctx, s, name); err != nil {
		return Change{}, err
	}

	pinned, err := clusterstate.ReadPinnedCatalog(ctx, s, name)
	if c.usesPinnedCatalog {
		c.catalog = pinned
		return c, err
	}

	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return c, err
	}

	given, err := LoadCatalog(ctx, catalog)
	c.catalog = given.WithDigests(pinned)

	return c, err
}

// Prune makes the change remove the groups that are absent from the given manifests.
func (c Change) Prune() Change {
	c.prunes = true

	return c
}

// WithCatalog makes the change also pin the cluster to another asset catalogue.
func (c Change) WithCatalog(catalog asset.Catalog) Change {
	c.catalog = catalog
	c.usesPinnedCatalog = false

	return c
}

// Before returns the manifests that the change replaces, with defaults.
func (c Change) Before() manifest.Set { return manifest.Default(c.before) }

// merge returns the manifests with the given documents in place of those of the same name.
func (c Change) merge(given manifest.Set) manifest.Set {
	after := manifest.Set{
		Cluster: c.before.Cluster,
		Groups:  append([]v1alpha1.InstanceGroup{}, given.Groups...),
	}
	if given.Cluster.Kind != "" {
		after.Cluster = manifest.KeepNew(given.Cluster, c.before.Cluster)
	}

	for _, g := range c.before.Groups {
		if _, replaced := given.Group(g.Metadata.Name); !replaced && !c.prunes {
			after.Groups = append(after.Groups, g)
		}
	}

	return manifest.Default(after)
}

// Check returns the manifests after the change, with defaults, and appends everything that is wrong with
// them to findings.
func (c Change) Check(
	given manifest.Set,
	findings diag.Findings,
) (manifest.Set, diag.Findings) {
	after := c.merge(given)
	if c.prunes && given.Cluster.Kind == "" {
		findings.Errorf(
			"manifest",
			"",
			"give the whole cluster, as printed by: slipway get all "+c.Name()+" -o yaml",
			"has no Cluster, so groups that are absent from it cannot be removed",
		)
	}

	findings = manifest.CheckEdit(c.applied, after, findings)
	if findings.Err() == nil {
		findings = append(findings, checkCatalog(after, c.catalog)...)
	}

	return after, findings
}

// zoneCheckTimeout limits how long an edit waits for AWS, which it does not need.
const zoneCheckTimeout = 3 * time.Second

// CheckZones returns the zones of after that are new and do not exist. Without new zones AWS is not called; if
// it cannot be reached or does not permit the call, nothing is found, and the next plan checks the zones.
func (c Change) CheckZones(ctx context.Context, env *cluster.Env, after manifest.Set) diag.Findings {
	known := map[string]bool{}
	for _, s := range manifest.Default(c.before).Cluster.Spec.Networking.Subnets {
		known[s.Zone] = true
	}

	isNew := func(s v1alpha1.Subnet) bool { return !known[s.Zone] && s.ID == "" }
	if !slices.ContainsFunc(after.Cluster.Spec.Networking.Subnets, isNew) {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, zoneCheckTimeout)
	defer cancel()
	session, err := cluster.Open(ctx, env, c.Name(), after.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil
	}

	found := session.CheckZones(ctx, after, known)
	if found.Err() == nil {
		return nil
	}

	return found
}

// Write is an object to write or to delete.
type Write struct {
	// Key of the object.
	Key string
	// Body is the encoded document; nil: the object is deleted.
	Body []byte
}

// Writes returns the objects that the change writes: groups first, so that the cluster never names a
// missing one, and those that it deletes last.
func (c Change) Writes(after manifest.Set) ([]Write, error) {
	name := after.Cluster.Metadata.Name
	before := manifest.Default(c.before)
	var out []Write
	if !c.usesPinnedCatalog {
		body, err := c.catalog.YAML()
		if err != nil {
			return nil, err
		}

		out = append(out, Write{manifest.AssetsKey(name), body})
	}

	for _, g := range after.Groups {
		old, _ := before.Group(g.Metadata.Name)
		if body := manifest.EncodeGroup(g); string(body) != string(manifest.EncodeGroup(old)) {
			out = append(out, Write{manifest.GroupKey(name, g.Metadata.Name), body})
		}
	}

	body := manifest.EncodeCluster(after.Cluster)
	if string(body) != string(manifest.EncodeCluster(before.Cluster)) {
		out = append(out, Write{manifest.ClusterKey(name), body})
	}

	for _, g := range c.before.Groups {
		if _, stays := after.Group(g.Metadata.Name); !stays {
			out = append(out, Write{Key: manifest.GroupKey(name, g.Metadata.Name)})
		}
	}

	return out, nil
}

// writeDocument writes one object if it is still the version that was read.
func (c Change) writeDocument(ctx context.Context, s store.Store, d Write) error {
	var err error
	if d.Body == nil {
		return c.deleteDocument(ctx, s, d.Key)
	}

	if etag, there := c.etags[d.Key]; there {
		_, err = s.Update(ctx, d.Key, d.Body, etag)
	} else if d.Key == manifest.AssetsKey(c.before.Cluster.Metadata.Name) {
		_, err = s.Put(ctx, d.Key, d.Body)
	} else {
		_, err = s.Create(ctx, d.Key, d.Body)
	}

	return explainConflict(err)
}

// deleteDocument deletes one object if it is still the version that was read.
func (c Change) deleteDocument(ctx context.Context, s store.Store, key string) error {
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}

	if err == nil && o.ETag != c.etags[key] {
		err = explainConflict(fmt.Errorf("delete %s: %w", key, store.ErrConflict))
	}

	if err != nil {
		return err
	}

	return s.Delete(ctx, key)
}

func explainConflict(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("another process changed the cluster: %w", err),
			"review it with 'slipway get', then rerun",
		)
	}

	return err
}

// Name returns the name of the cluster.
func (c Change) Name() string { return c.before.Cluster.Metadata.Name }

// SetETag sets the version of one document that the change was made from.
func (c Change) SetETag(key, etag string) { c.etags[key] = etag }

// Lines returns the fields that differ in after, and the images that get digests, one line each.
func (c Change) Lines(after manifest.Set) []string {
	return slices.Concat(manifest.Diff(manifest.Default(c.before), after), c.pinned)
}

// Apply writes objects under the cluster's lock, and signs them if the cluster has a signature. kind is the operation in
// the journal: replace or edit.
func (c Change) Apply(ctx context.Context, env *cluster.Env, kind string, writes []Write) error {
	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	req := cluster.OperationRequest{Store: s, Cluster: c.Name(), Kind: kind}

	return env.RunOperation(
		ctx,
		req,
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			signed := c.signedChange()
			for _, w := range writes {
				signed.Documents[w.Key] = w.Body
			}

			err := env.RunSigned(ctx, guarded, signed, func() error {
				for _, w := range writes {
					op.UpdateRecord(func(r *operation.Record) { r.Documents = append(r.Documents, w.Key) })
					if err := c.writeDocument(ctx, guarded, w); err != nil {
						return err
					}
				}

				return nil
			})

			return explainConflict(err)
		},
	)
}

// Mark tells AWS which documents are the last ones, if the change was written by a command that was killed before it did.
func (c Change) Mark(ctx context.Context, env *cluster.Env) error {
	return env.MarkSigned(ctx, c.signedChange())
}

// signedChange returns the change without the documents that it writes.
func (c Change) signedChange() cluster.SignedChange {
	return cluster.SignedChange{
		Cluster:   c.Name(),
		Region:    c.before.Cluster.Spec.CloudProvider.AWS.Region,
		Before:    c.signed,
		Documents: map[string][]byte{},
	}
}
