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

// DocumentReview is what an operator sees before signing the documents of a cluster that Slipway
// has not written, or that are not signed. Each document has its SHA-256, which the operator can
// compare with that of a file.
type DocumentReview struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Changes are the documents that differ from the signed ones, one line each: + new, ~ changed,
	// - deleted.
	Changes []string
	// Unchanged are the documents that are as they were signed, one line each. They are signed
	// again.
	Unchanged []string
	// Fields are the fields of the manifests that differ from those that were applied last, one
	// line each.
	Fields []string
	// Authorities describe the certificate authorities, one line each.
	Authorities []string
	// IsSigned is set if the documents are signed as they are.
	IsSigned bool
	// Earlier tells that the documents are earlier ones than an operator has accepted; empty if
	// they are not.
	Earlier string

	former clusterstate.Signed
	found  map[string]string
	issuer []byte
	region string
}

// ReviewDocuments compares the documents of a cluster with its signature, if it has one, and with
// what was accepted last. It reads each document once, from the store itself and not from the
// index.
func (env *Env) ReviewDocuments(ctx context.Context, name string) (DocumentReview, error) {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return DocumentReview{}, err
	}

	s := newReadOnceStore(state)
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

	out.Changes, out.Unchanged = compareDocuments(out.former.Documents, out.found)
	out.IsSigned = out.former.Documents != nil && len(out.Changes) == 0
	if err := out.compareManifests(ctx, s); err != nil {
		return out, err
	}

	mark, err := readRevisionMark(ctx, env, s, name, out.region)
	out.Earlier = describeEarlier(out.former, mark.revision)

	return out, err
}

// describeEarlier tells that documents have a valid signature that is older than what was accepted;
// empty if it is not.
func describeEarlier(former clusterstate.Signed, accepted int64) string {
	if former.Documents == nil || former.Revision >= accepted {
		return ""
	}

	return fmt.Sprintf(
		"somebody has restored earlier documents: their signature has revision %d, and an operator has "+
			"accepted revision %d",
		former.Revision,
		accepted,
	)
}

// compareDocuments returns a line for each document, those that differ first.
func compareDocuments(former, found map[string]string) (changed, unchanged []string) {
	all := maps.Clone(found)
	maps.Copy(all, former)

	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, is := former[key], found[key]

		switch {
		case was == is:
			unchanged = append(unchanged, fmt.Sprintf("%s: sha256 %s", key, is))
		case was == "":
			changed = append(changed, fmt.Sprintf("+ %s: sha256 %s", key, is))
		case is == "":
			changed = append(changed, fmt.Sprintf("- %s: was sha256 %s", key, was))
		default:
			changed = append(changed, fmt.Sprintf("~ %s: sha256 %s, was %s", key, is, was))
		}
	}

	return changed, unchanged
}

// compareManifests compares the fields of the manifests with those that were applied last.
func (r *DocumentReview) compareManifests(ctx context.Context, s store.Store) error {
	text, _, err := clusterstate.ReadDocuments(ctx, s, r.Cluster)
	if err != nil {
		return err
	}

	applied, err := clusterstate.ReadAppliedManifests(ctx, s, r.Cluster)
	if err != nil {
		return err
	}

	set, _ := manifest.Parse(text)
	r.region = set.Cluster.Spec.CloudProvider.AWS.Region
	r.Fields = manifest.Diff(applied, manifest.Default(set))

	return nil
}

// SignDocuments signs what was reviewed, under the lock of the cluster. It fails if the documents
// have changed since, or if the first certificate of the Kubernetes CA is not that of the key that
// the cluster has.
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

			return env.signReviewed(ctx, guarded, ca.Key(), review)
		},
	)
}

// signReviewed signs the documents of a review as they were shown, with a revision above all that
// were accepted, and writes it to AWS.
func (env *Env) signReviewed(
	ctx context.Context,
	guarded store.Store,
	key pki.Key,
	review DocumentReview,
) error {
	mark, err := readRevisionMark(ctx, env, guarded, review.Cluster, review.region)
	if err != nil {
		return err
	}

	state, err := operation.Fenced(ctx, guarded)
	if err != nil {
		return err
	}

	now := max(env.Now().Unix(), mark.revision+1)
	former := clusterstate.Signed{Revision: review.former.Revision, Object: review.former.Object}
	signer := clusterstate.NewSigner(state, review.Cluster, key, now, former)
	if err := signer.Finish(ctx, review.found); err != nil {
		return err
	}

	// A restored backup is one whose signature is needed to take the cluster over.
	if err := mark.checkCopy(); err != nil {
		env.Notifyf("AWS does not have the revision of these documents yet: %s", err)

		return nil
	}

	return mark.writeFenced(ctx, guarded, signer.Signed().Revision)
}
