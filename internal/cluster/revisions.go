// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// publishedRevisions are the revisions of one role as the machine store has them.
type publishedRevisions struct {
	node.Revisions

	// object that has them; without an ETag there is none.
	object store.Object
}

// readRevisions returns the published revisions of a role, as they were when the view was opened or as d wrote them
// since. Revisions that the cluster's CA did not sign count as none, and are overwritten.
func (session *Session) readRevisions(
	ctx context.Context,
	d *Desired,
	role v1alpha1.Role,
) (publishedRevisions, error) {
	if known, ok := d.revisions[role]; ok {
		return known, nil
	}

	out, err := session.readRevisionsFrom(ctx, d, d.publishedStore(), role)
	if err == nil {
		d.keepRevisions(role, out)
	}

	return out, err
}

// keepRevisions keeps the revisions of a role, so that they are not read again.
func (d *Desired) keepRevisions(role v1alpha1.Role, published publishedRevisions) {
	if d.revisions == nil {
		d.revisions = map[v1alpha1.Role]publishedRevisions{}
	}

	d.revisions[role] = published
}

// readRevisionsFrom is readRevisions for a store that is read now.
func (session *Session) readRevisionsFrom(
	ctx context.Context,
	d *Desired,
	from store.Store,
	role v1alpha1.Role,
) (publishedRevisions, error) {
	key := node.RevisionsKey(session.Name, role)
	out := publishedRevisions{object: store.Object{Key: key}}
	o, err := from.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return out, nil
	}

	if err != nil {
		return out, err
	}

	public, err := pki.LoadPublicBundle(ctx, d.View, session.Name)
	if err != nil {
		return out, err
	}

	out.object = o
	revisions, err := node.VerifyRevisions(o.Body, public.CAs[pki.KubernetesCA], session.Name, role)
	if err == nil {
		out.Revisions = revisions
	}

	return out, nil
}

// findUnpublishedRevisions adds the keys of the revisions that have other documents than d to d.Unpublished.
func (session *Session) findUnpublishedRevisions(ctx context.Context, d *Desired) error {
	for role, documents := range d.documents {
		published, err := session.readRevisions(ctx, d, role)
		if err != nil {
			return err
		}

		if published.Lacks(documents) {
			d.Unpublished = append(d.Unpublished, published.object.Key)
		}
	}

	slices.Sort(d.Unpublished)

	return nil
}

// PublishRevisions makes the node documents of d the current ones, which running machines follow. It writes nothing
// if they are. The result has the groups whose running machines have something to follow, by name with the SHA-256
// of the document.
func (session *Session) PublishRevisions(ctx context.Context, d *Desired) (map[string]string, error) {
	w := revisionsWriter{session: session, desired: d, written: d.documents}

	return w.makeCurrent(
		ctx,
		slices.Sorted(maps.Keys(d.documents)),
		func(role v1alpha1.Role, _ map[string]node.Revision) map[string]string { return d.documents[role] },
	)
}

// PublishReturning makes the documents of d current for the groups whose document was current before, as after a change
// of a manifest that was taken back. It has to happen before launch templates get this document: a machine that boots
// with it follows the current revision, which is the one that was taken back. The result is as of PublishRevisions.
func (session *Session) PublishReturning(ctx context.Context, d *Desired) (map[string]string, error) {
	w := revisionsWriter{session: session, desired: d}

	return w.makeCurrent(
		ctx,
		slices.Sorted(maps.Keys(d.documents)),
		forEachGroup(func(role v1alpha1.Role, group string, r node.Revision) string {
			if document := d.documents[role][group]; slices.Contains(r.Former, document) {
				return document
			}

			return r.Document
		}),
	)
}

// PublishFormerDocuments makes former node documents (by group, as SHA-256) the current ones of their groups again, as
// new revisions. Other groups keep theirs. The result has the groups whose document has changed.
func (session *Session) PublishFormerDocuments(
	ctx context.Context,
	documents map[string]string,
) (map[string]string, error) {
	d, err := Load(ctx, session.Env, session.Name)
	if err != nil {
		return nil, err
	}

	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	w := revisionsWriter{session: session, desired: d}

	return w.makeCurrent(
		ctx,
		[]v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker},
		forEachGroup(func(_ v1alpha1.Role, group string, r node.Revision) string {
			return cmp.Or(documents[group], r.Document)
		}),
	)
}

// RenewRevisions publishes the current documents of groups again, each with a new serial, so that machines that refused
// theirs try it again. The result has the revisions of these groups.
func (session *Session) RenewRevisions(ctx context.Context, groups []string) (map[string]node.Revision, error) {
	d, err := Load(ctx, session.Env, session.Name)
	if err != nil {
		return nil, err
	}

	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	roles := []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker}
	w := revisionsWriter{session: session, desired: d, renewed: groups}
	keep := forEachGroup(func(_ v1alpha1.Role, _ string, r node.Revision) string { return r.Document })
	if _, err := w.makeCurrent(ctx, roles, keep); err != nil {
		return nil, err
	}

	renewed := map[string]node.Revision{}
	for _, role := range roles {
		current, err := session.readRevisions(ctx, d, role)
		if err != nil {
			return nil, err
		}

		for _, group := range groups {
			if r, known := current.Groups[group]; known {
				renewed[group] = r
			}
		}
	}

	return renewed, nil
}

// ReadCurrentDocuments returns the SHA-256 of the current node document of each group, as running machines see it.
func (session *Session) ReadCurrentDocuments(ctx context.Context, d *Desired) (map[string]string, error) {
	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	out := map[string]string{}
	for _, role := range []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		revisions, err := session.readRevisionsFrom(ctx, d, d.MachineStore, role)
		if err != nil {
			return nil, err
		}

		for group, r := range revisions.Groups {
			out[group] = r.Document
		}
	}

	return out, nil
}
