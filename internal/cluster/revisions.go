// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
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

// readRevisions returns the published revisions of a role. Revisions that the cluster's CA did not sign count as
// none, and are overwritten.
func (session *Session) readRevisions(
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
		published, err := session.readRevisions(ctx, d, d.publishedStore(), role)
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
	changed := map[string]string{}
	for _, role := range slices.Sorted(maps.Keys(d.documents)) {
		documents := d.documents[role]
		former, err := session.readRevisions(ctx, d, d.MachineStore, role)
		if err != nil {
			return nil, err
		}

		if !former.Lacks(documents) {
			continue
		}

		if err := session.ensureLock(ctx); err != nil {
			return nil, err
		}

		if err := session.writeRevisions(ctx, d, role, former, documents); err != nil {
			return nil, err
		}

		for group, document := range documents {
			if was, known := former.Groups[group]; known && was.Document != document {
				changed[group] = document
			}
		}
	}

	return changed, nil
}

// PublishReturning makes the documents of d current for the groups whose document was current before, as after a change
// of a manifest that was taken back. It has to happen before launch templates get this document: a machine that boots
// with it follows the current revision, which is the one that was taken back. The result is as of PublishRevisions.
func (session *Session) PublishReturning(ctx context.Context, d *Desired) (map[string]string, error) {
	changed := map[string]string{}
	for _, role := range slices.Sorted(maps.Keys(d.documents)) {
		former, err := session.readRevisions(ctx, d, d.MachineStore, role)
		if err != nil {
			return nil, err
		}

		wanted := map[string]string{}
		for group, r := range former.Groups {
			wanted[group] = r.Document
			if document := d.documents[role][group]; slices.Contains(r.Former, document) {
				wanted[group] = document
			}

			if wanted[group] != r.Document {
				changed[group] = wanted[group]
			}
		}

		if err := session.writeFormer(ctx, d, role, former, wanted); err != nil {
			return nil, err
		}
	}

	return changed, nil
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

	changed := map[string]string{}
	for _, role := range []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		former, err := session.readRevisions(ctx, d, d.MachineStore, role)
		if err != nil {
			return nil, err
		}

		wanted := map[string]string{}
		for group, r := range former.Groups {
			wanted[group] = cmp.Or(documents[group], r.Document)
			if wanted[group] != r.Document {
				changed[group] = wanted[group]
			}
		}

		if err := session.writeFormer(ctx, d, role, former, wanted); err != nil {
			return nil, err
		}
	}

	return changed, nil
}

// writeFormer writes the revisions of a role with former documents, which must still exist.
func (session *Session) writeFormer(
	ctx context.Context,
	d *Desired,
	role v1alpha1.Role,
	former publishedRevisions,
	wanted map[string]string,
) error {
	if !former.Lacks(wanted) {
		return nil
	}

	for group, sum := range wanted {
		if _, err := d.MachineStore.Get(ctx, node.DocumentKey(session.Name, role, group, sum)); err != nil {
			return fmt.Errorf("read the node document of group %s to return to: %w", group, err)
		}
	}

	if err := session.ensureLock(ctx); err != nil {
		return err
	}

	return session.writeRevisions(ctx, d, role, former, wanted)
}

// writeRevisions signs and writes the revisions of a role that make documents (by group, as SHA-256) current.
func (session *Session) writeRevisions(
	ctx context.Context,
	d *Desired,
	role v1alpha1.Role,
	former publishedRevisions,
	documents map[string]string,
) error {
	state, sealer, err := session.Env.Stores.State(ctx)
	if err != nil {
		return err
	}

	ca, err := pki.OpenCA(ctx, state, sealer, session.Name, pki.KubernetesCA)
	if err != nil {
		return err
	}

	in := node.RevisionsInput{
		Cluster:     session.Name,
		Role:        role,
		Former:      former.Revisions,
		Documents:   documents,
		FirstSerial: session.Env.Now().Unix(),
	}
	if in.Published, err = listPublishedDocuments(ctx, d.MachineStore, session.Name, in); err != nil {
		return err
	}

	body, err := node.NewRevisions(in).Sign(ca.Key())
	if err != nil {
		return err
	}

	_, err = clusterstate.ReplaceObject(ctx, d.MachineStore, store.Object{Key: former.object.Key, Body: body}, former.object)
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("publish %s: %w", former.object.Key, err),
			"rerun slipway apply: another process wrote the revisions at the same time",
		)
	}

	return err
}

// listPublishedDocuments returns the SHA-256 of all published documents by group.
func listPublishedDocuments(
	ctx context.Context,
	s store.Store,
	cluster string,
	in node.RevisionsInput,
) (map[string][]string, error) {
	out := map[string][]string{}
	for group := range in.Documents {
		prefix := strings.TrimSuffix(node.DocumentKey(cluster, in.Role, group, ""), ".json")
		keys, err := s.List(ctx, prefix)
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			sum := strings.TrimSuffix(strings.TrimPrefix(key, prefix), ".json")
			if len(sum) == sha256Digits { // else it is the document of a group whose name begins with this one
				out[group] = append(out[group], sum)
			}
		}
	}

	return out, nil
}

// sha256Digits is the length of a SHA-256 in hex.
const sha256Digits = 64

// ReadCurrentDocuments returns the SHA-256 of the current node document of each group, as running machines see it.
func (session *Session) ReadCurrentDocuments(ctx context.Context, d *Desired) (map[string]string, error) {
	if err := session.ResolveMachineStore(ctx, d); err != nil {
		return nil, err
	}

	out := map[string]string{}
	for _, role := range []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		revisions, err := session.readRevisions(ctx, d, d.MachineStore, role)
		if err != nil {
			return nil, err
		}

		for group, r := range revisions.Groups {
			out[group] = r.Document
		}
	}

	return out, nil
}
