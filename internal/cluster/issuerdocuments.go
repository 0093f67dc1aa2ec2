// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// issuerDocument is one of the documents with which everybody verifies tokens of the cluster's service accounts.
type issuerDocument struct {
	key  string // in the discovery store
	body []byte
	have store.Object // what is published; zero: nothing
}

func (x issuerDocument) isPublished() bool {
	return x.have.ETag != "" && string(x.have.Body) == string(x.body)
}

// issuerDocuments are the documents of one cluster. The configuration comes first: it has the cluster's id.
type issuerDocuments struct {
	store store.Store // nil: the cluster has none
	list  []issuerDocument
}

// IssuerDocument is a published document that is not as it should be.
type IssuerDocument struct {
	// URL of the object, s3://….
	URL string
	// Exists is set if the object exists, with other content.
	Exists bool
}

// configurationKey returns the key of a cluster's discovery document.
func configurationKey(cluster string) string { return cluster + "/" + oidcdiscovery.ConfigurationPath }

// buildIssuerDocuments returns the documents of the cluster, as they should be and as they are. It reads and writes
// nothing if the manifest names no discovery store.
func (session *Session) buildIssuerDocuments(ctx context.Context, d *Desired) (issuerDocuments, error) {
	c := d.Manifests.Cluster
	if !manifest.HasPodIdentity(c) {
		return issuerDocuments{}, nil
	}

	s, err := session.openDiscoveryStore(ctx, d.Manifests)
	if err != nil {
		return issuerDocuments{}, err
	}

	if err := session.checkDiscoveryBucket(s, d); err != nil {
		return issuerDocuments{}, err
	}

	public, err := pki.LoadPublicBundle(ctx, d.View, session.Name)
	if err != nil {
		return issuerDocuments{}, err
	}

	configuration, err := oidcdiscovery.EncodeConfiguration(c.Spec.KubeAPIServer.ServiceAccountIssuer, session.ownership.ID)
	if err != nil {
		return issuerDocuments{}, err
	}

	keys, err := oidcdiscovery.EncodeKeySet([]byte(public.ServiceAccountKeys))
	if err != nil {
		return issuerDocuments{}, err
	}

	out := issuerDocuments{store: s, list: []issuerDocument{
		{key: configurationKey(session.Name), body: configuration},
		{key: session.Name + "/" + oidcdiscovery.KeySetPath, body: keys},
	}}

	for i := range out.list {
		if out.list[i].have, err = readIfExists(ctx, s, out.list[i].key); err != nil {
			return issuerDocuments{}, err
		}
	}

	return out, session.checkIssuerOwner(s, out.list[0].have)
}

// openDiscoveryStore opens the discovery store that the manifest names.
func (session *Session) openDiscoveryStore(ctx context.Context, set manifest.Set) (store.Store, error) {
	url := set.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore

	return session.Env.Stores.OpenDiscovery(ctx, url, session.Config.Region)
}

// checkDiscoveryBucket returns an error if the discovery store is in a bucket that has something else.
func (session *Session) checkDiscoveryBucket(s store.Store, d *Desired) error {
	at, err := store.ParseURL(s.URL())
	if err != nil {
		return err
	}

	for _, other := range []store.Store{d.MachineStore, d.View} {
		if place, err := store.ParseURL(other.URL()); err == nil && place.Bucket == at.Bucket {
			return diag.WithHint(
				fmt.Errorf("the discovery store %s is in the bucket of the store %s", s.URL(), other.URL()),
				"use a bucket of its own, which everybody can read: slipway iam init-discovery s3://…",
			)
		}
	}

	return nil
}

// checkIssuerOwner returns an error if the published discovery document is that of another cluster.
func (session *Session) checkIssuerOwner(s store.Store, have store.Object) error {
	if have.ETag == "" {
		return nil
	}

	published, err := oidcdiscovery.ParseConfiguration(have.Body)
	if err == nil && published.ClusterID == session.ownership.ID {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("%s in %s belongs to another cluster of this name", have.Key, s.URL()),
		"use another prefix in spec.serviceAccountIssuerDiscovery.discoveryStore, or delete the object if that cluster is gone",
	)
}

// readIfExists returns an object; zero if it or its bucket does not exist.
func readIfExists(ctx context.Context, s store.Store, key string) (store.Object, error) {
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return store.Object{}, nil
	}

	return o, err
}

// findUnpublishedIssuerDocuments adds the documents that are missing or not as they should be to d.Unpublished.
func (session *Session) findUnpublishedIssuerDocuments(ctx context.Context, d *Desired) (err error) {
	if d.issuer, err = session.buildIssuerDocuments(ctx, d); err != nil {
		return err
	}

	for _, x := range d.issuer.deviating() {
		d.Unpublished = append(d.Unpublished, x.URL)
	}

	slices.Sort(d.Unpublished)

	return nil
}

// deviating returns the documents that are missing or not as they should be.
func (x issuerDocuments) deviating() []IssuerDocument {
	var out []IssuerDocument
	for _, document := range x.list {
		if !document.isPublished() {
			out = append(out, IssuerDocument{
				URL:    x.store.URL() + "/" + document.key,
				Exists: document.have.ETag != "",
			})
		}
	}

	return out
}

// UnpublishedIssuerDocuments returns how many of d.Unpublished are documents of the issuer.
func (d *Desired) UnpublishedIssuerDocuments() int { return len(d.issuer.deviating()) }

// CompareIssuerDocuments returns the published documents of the issuer that are missing or not as they should be. It
// reads nothing if the manifest names no discovery store.
func (session *Session) CompareIssuerDocuments(ctx context.Context, d *Desired) ([]IssuerDocument, error) {
	documents, err := session.buildIssuerDocuments(ctx, d)

	return documents.deviating(), err
}

// PublishIssuerDocuments writes the documents of the issuer that are missing or not as they should be. The first one
// marks the place as the cluster's own, so it is written first. What somebody else wrote since the plan stays.
func (session *Session) PublishIssuerDocuments(ctx context.Context, d *Desired) error {
	if len(d.issuer.deviating()) == 0 {
		return nil
	}

	if session.Operation == nil {
		return errors.New("publish the documents of the issuer: no operation holds the lock of the cluster")
	}

	guarded := session.Operation.GuardStore(d.issuer.store)

	for _, x := range d.issuer.list {
		if x.isPublished() {
			continue
		}

		var err error
		if x.have.ETag == "" {
			_, err = guarded.Create(ctx, x.key, x.body)
		} else {
			_, err = guarded.Update(ctx, x.key, x.body, x.have.ETag)
		}

		if errors.Is(err, store.ErrNotFound) {
			return diag.WithHint(err, "create the bucket: slipway iam init-discovery "+d.issuer.store.URL()+" --yes")
		}

		if err != nil {
			return err
		}
	}

	session.Env.Notifyf("published the documents of issuer %s", d.Manifests.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer)

	return nil
}

// FindIssuerObjects returns the published documents of the issuer, for their deletion; false if there are none, or if
// they are those of another cluster.
func (session *Session) FindIssuerObjects(ctx context.Context, set manifest.Set) (ObjectSet, bool, error) {
	if !manifest.HasPodIdentity(set.Cluster) {
		return ObjectSet{}, false, nil
	}

	s, err := session.openDiscoveryStore(ctx, set)
	if err != nil {
		return ObjectSet{}, false, err
	}

	// Without a discovery document, the place is nobody's: a deletion was interrupted.
	configuration, err := readIfExists(ctx, s, configurationKey(session.Name))
	if err != nil || session.checkIssuerOwner(s, configuration) != nil {
		return ObjectSet{}, false, err
	}

	keys, err := s.List(ctx, session.Name+"/")
	if errors.Is(err, store.ErrNotFound) { // the bucket is gone
		return ObjectSet{}, false, nil
	}

	return ObjectSet{Store: s, Keys: keys}, len(keys) > 0, err
}
