// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// revisionsWriter makes published node documents current.
type revisionsWriter struct {
	session *Session
	desired *Desired

	// written are the documents (SHA-256 by role and group) that were published after the view was opened.
	written map[v1alpha1.Role]map[string]string

	// renewed are the groups whose document gets a new serial although it is the current one.
	renewed []string
}

// renews reports whether one of the groups of these revisions gets a new serial.
func (w revisionsWriter) renews(former publishedRevisions) bool {
	return slices.ContainsFunc(w.renewed, func(group string) bool {
		_, known := former.Groups[group]
		return known
	})
}

// documentChooser returns the documents (SHA-256 by group) that are to be current in the groups of a role, by their
// current revisions.
type documentChooser func(role v1alpha1.Role, current map[string]node.Revision) map[string]string

// forEachGroup is the [documentChooser] that asks for the document of each group with a revision.
func forEachGroup(
	choose func(role v1alpha1.Role, group string, current node.Revision) string,
) documentChooser {
	return func(role v1alpha1.Role, current map[string]node.Revision) map[string]string {
		out := map[string]string{}
		for group, r := range current {
			out[group] = choose(role, group, r)
		}

		return out
	}
}

// makeCurrent makes the chosen documents of roles current. A role whose documents are current is not written. The result
// has the groups with a former revision whose document has changed, with the SHA-256 of the new one.
func (w revisionsWriter) makeCurrent(
	ctx context.Context,
	roles []v1alpha1.Role,
	choose documentChooser,
) (map[string]string, error) {
	changed := map[string]string{}
	for _, role := range roles {
		former, err := w.session.readRevisions(ctx, w.desired, role)
		if err != nil {
			return nil, err
		}

		documents := choose(role, former.Groups)
		if !former.Lacks(documents) && !w.renews(former) {
			continue
		}

		if err := w.write(ctx, role, former, documents); err != nil {
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

// write signs and writes the revisions of a role that make documents (by group, as SHA-256) current, which must exist.
func (w revisionsWriter) write(
	ctx context.Context,
	role v1alpha1.Role,
	former publishedRevisions,
	documents map[string]string,
) error {
	published, err := w.listDocuments(ctx, role)
	if err != nil {
		return err
	}

	for group, sum := range documents {
		if !slices.Contains(published[group], sum) {
			return fmt.Errorf("make a node document of group %s current: %s does not exist in %s",
				group, node.DocumentKey(w.session.Name, role, group, sum), w.desired.MachineStore.URL())
		}
	}

	if err := w.session.ensureLock(ctx); err != nil {
		return err
	}

	ca, err := w.session.openKubernetesCA(ctx)
	if err != nil {
		return err
	}

	revisions := node.NewRevisions(node.RevisionsInput{
		Cluster:     w.session.Name,
		Role:        role,
		Former:      former.Revisions,
		Documents:   documents,
		FirstSerial: w.session.Env.Now().Unix(),
		Published:   published,
		Renewed:     w.renewed,
	})
	body, err := revisions.Sign(ca.Key())
	if err != nil {
		return err
	}

	return w.replace(ctx, role, former, publishedRevisions{
		Revisions: revisions,
		object:    store.Object{Key: former.object.Key, Body: body},
	})
}

// replace writes revisions, unless another process has changed the former ones in the meantime.
func (w revisionsWriter) replace(ctx context.Context, role v1alpha1.Role, former, next publishedRevisions) error {
	written, err := clusterstate.ReplaceObject(ctx, w.desired.MachineStore, next.object, former.object)
	if errors.Is(err, store.ErrConflict) {
		return diag.WithHint(
			fmt.Errorf("publish %s: %w", former.object.Key, err),
			"rerun slipway apply: another process wrote the revisions at the same time",
		)
	}

	if err != nil {
		return err
	}

	next.object = written
	w.desired.keepRevisions(role, next)
	if w.desired.publishedStore() == store.Store(w.desired.View) {
		w.desired.View.AddObject(written)
	}

	return nil
}

// listDocuments returns the SHA-256 of all published documents of a role by group.
func (w revisionsWriter) listDocuments(ctx context.Context, role v1alpha1.Role) (map[string][]string, error) {
	out := map[string][]string{}
	for group, sum := range w.written[role] {
		out[group] = append(out[group], sum)
	}

	prefix := strings.TrimSuffix(node.DocumentKey(w.session.Name, role, "", ""), "-.json")
	keys, err := w.desired.ListedMachineStore().List(ctx, prefix)
	if err != nil {
		return nil, err
	}

	for _, key := range keys {
		group, sum, ok := node.ParseDocumentKey(key)
		if ok && !slices.Contains(out[group], sum) {
			out[group] = append(out[group], sum)
		}
	}

	return out, nil
}

// openKubernetesCA returns the CA that signs revisions. It is decrypted once.
func (session *Session) openKubernetesCA(ctx context.Context) (pki.CA, error) {
	if session.kubernetesCA != nil {
		return *session.kubernetesCA, nil
	}

	state, sealer, err := session.Env.Stores.State(ctx)
	if err != nil {
		return pki.CA{}, err
	}

	ca, err := pki.OpenCA(ctx, state, sealer, session.Name, pki.KubernetesCA)
	if err == nil {
		session.UseKubernetesCA(ca)
	}

	return ca, err
}

// UseKubernetesCA sets the CA that signs revisions, for a caller that has decrypted it.
func (session *Session) UseKubernetesCA(ca pki.CA) { session.kubernetesCA = &ca }
