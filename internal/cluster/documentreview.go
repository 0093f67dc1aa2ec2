// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// DocumentReview is what an operator sees before signing the documents of a cluster that Slipway has not written, or that
// are not signed.
type DocumentReview struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Changes are the documents that differ from the signed ones, one line each: + new, ~ changed, - deleted.
	Changes []string
	// Fields are the fields of the manifests that differ from those that were applied last, one line each.
	Fields []string
	// Authorities describe the certificate authorities, one line each.
	Authorities []string
	// IsSigned is set if the documents are signed as they are.
	IsSigned bool

	former clusterstate.Signed
	found  map[string]string
	issuer []byte
}

// ReviewDocuments compares the documents of a cluster with its signature, if it has one. It reads all documents from the
// store itself, and not from the index.
func (env *Env) ReviewDocuments(ctx context.Context, name string) (DocumentReview, error) {
	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return DocumentReview{}, err
	}

	if err := clusterstate.RequireCluster(ctx, s, name); err != nil {
		return DocumentReview{}, err
	}

	out := DocumentReview{Cluster: name}
	if out.found, err = clusterstate.HashAllDocuments(ctx, s, name); err != nil {
		return out, err
	}

	if out.former, err = clusterstate.ReadSignature(ctx, s, name); err != nil {
		return out, err
	}

	public, err := pki.LoadPublicBundle(ctx, s, name)
	if err != nil {
		return out, err
	}

	if out.issuer, err = public.Issuer(pki.KubernetesCA); err != nil {
		return out, err
	}

	for _, ca := range pki.CANames() {
		out.Authorities = append(out.Authorities, ca+": "+explain.DescribeTrust(public.CAs[ca]))
	}

	out.Changes = compareDocuments(out.former.Documents, out.found)
	out.IsSigned = out.former.Documents != nil && len(out.Changes) == 0
	out.Fields, err = compareFields(ctx, s, name)

	return out, err
}

// compareDocuments returns the documents that differ.
func compareDocuments(former, found map[string]string) []string {
	all := maps.Clone(found)
	maps.Copy(all, former)

	var out []string

	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch {
		case former[key] == found[key]:
		case former[key] == "":
			out = append(out, "+ "+key)
		case found[key] == "":
			out = append(out, "- "+key)
		default:
			out = append(out, "~ "+key)
		}
	}

	return out
}

// compareFields returns the fields of the manifests that differ from those that were applied last.
func compareFields(ctx context.Context, s store.Store, name string) ([]string, error) {
	text, _, err := clusterstate.ReadDocuments(ctx, s, name)
	if err != nil {
		return nil, err
	}

	applied, err := clusterstate.ReadAppliedManifests(ctx, s, name)
	if err != nil {
		return nil, err
	}

	set, _ := manifest.Parse(text)

	return manifest.Diff(applied, manifest.Default(set)), nil
}

// SignDocuments signs what was reviewed, under the lock of the cluster. It fails if the documents have changed since, or if
// the first certificate of the Kubernetes CA is not that of the key that the cluster has.
func (env *Env) SignDocuments(ctx context.Context, review DocumentReview) error {
	s, _, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	ca, err := env.openAuthority(ctx, review.Cluster, review.issuer)
	if err != nil {
		return err
	}

	req := OperationRequest{Store: s, Cluster: review.Cluster, Kind: "sign"}

	return env.RunOperation(
		ctx,
		req,
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			found, err := clusterstate.HashAllDocuments(ctx, guarded, review.Cluster)
			if err != nil {
				return err
			}

			if !maps.Equal(found, review.found) {
				return diag.WithHint(
					fmt.Errorf("sign the documents of cluster %s: %w", review.Cluster, store.ErrConflict),
					"rerun, and review them again",
				)
			}

			op.UpdateRecord(func(r *operation.Record) { r.Documents = slices.Sorted(maps.Keys(found)) })
			state, err := operation.Fenced(ctx, guarded)
			if err != nil {
				return err
			}

			former := clusterstate.Signed{Revision: review.former.Revision, Object: review.former.Object}
			signer := clusterstate.NewSigner(state, review.Cluster, ca.Key(), env.Now().Unix(), former)

			return signer.Finish(ctx, found)
		},
	)
}
