// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// verify checks that an operator of the cluster has signed a document of its add-ons as it is.
func (s *Session) verify(ctx context.Context, o store.Object) error {
	name := s.Cluster.Metadata.Name
	signed, err := clusterstate.VerifyObject(ctx, s.state, name, o)
	if err != nil || s.checkedSigner != nil && *s.checkedSigner == signed.Object.ETag {
		return err
	}

	if err := cluster.CheckSigner(ctx, s.env, s.Cluster, signed); err != nil {
		return err
	}

	s.checkedSigner = &signed.Object.ETag

	return nil
}

// write signs a document of the cluster's add-ons and writes it, or deletes it if body is nil,
// under the cluster's lock. kind is the operation in the journal. The signature is of body, and not
// of what the store has afterwards.
func (s *Session) write(ctx context.Context, kind, key string, body []byte) error {
	name := s.Cluster.Metadata.Name
	req := cluster.OperationRequest{Store: s.state, Cluster: name, Kind: kind}

	return s.env.RunOperation(ctx, req, func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
		op.UpdateRecord(func(r *operation.Record) { r.Documents = []string{key} })
		before, err := clusterstate.VerifyDocuments(ctx, guarded, name)
		if err != nil {
			return err
		}

		change := s.change(before)
		change.Documents = map[string][]byte{key: body}

		return s.env.RunSigned(ctx, guarded, change, func() error {
			if body == nil {
				return guarded.Delete(ctx, key)
			}

			_, err := guarded.Put(ctx, key, body)

			return err
		})
	})
}

// change returns a change of documents that were verified.
func (s *Session) change(before clusterstate.Signed) cluster.SignedChange {
	return cluster.SignedChange{
		Cluster: s.Cluster.Metadata.Name,
		Region:  s.Cluster.Spec.CloudProvider.AWS.Region,
		Before:  before,
	}
}

// Mark tells AWS which documents are the last ones, if the command that wrote them was killed
// before it did.
func (s *Session) Mark(ctx context.Context) error {
	before, err := clusterstate.VerifyDocuments(ctx, s.state, s.Cluster.Metadata.Name)
	if err != nil {
		return err
	}

	return s.env.MarkSigned(ctx, s.change(before))
}
