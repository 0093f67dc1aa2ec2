// SPDX-License-Identifier: Apache-2.0

// Package publish writes what machines download to the machine store.
package publish

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// WriteObjects writes d.Unpublished to the machine store: the agent, the node documents and the sealed keys.
// Objects that exist are left as they are, so it may be called again. The session must be open; its lock is
// not checked, since no object is ever overwritten with other content. The documents of the issuer of service-account
// tokens, which are written too, can be overwritten: they are written under the lock.
func WriteObjects(ctx context.Context, session *cluster.Session, d *cluster.Desired) error {
	if err := CheckFunctionCode(ctx, d); err != nil {
		return err
	}

	if len(d.Unpublished) == 0 {
		return nil
	}

	// Agents refuse keys without their names, as an older slipway has sealed them. If this is interrupted, an agent must not
	// be there before such keys have been sealed again: the next call finds nothing unpublished.
	if err := writeKeys(ctx, session, d); err != nil {
		return err
	}

	var objectErr, issuerErr error
	var wg sync.WaitGroup
	wg.Go(func() { _, objectErr = node.PublishObjects(ctx, d.ListedMachineStore(), d.MachineObjects) })
	wg.Go(func() { issuerErr = session.PublishIssuerDocuments(ctx, d) })
	wg.Wait()
	if err := errors.Join(objectErr, issuerErr); err != nil {
		return err
	}

	if n := len(d.Unpublished) - d.UnpublishedIssuerDocuments(); n > 0 {
		session.Env.Notifyf("published %d objects in %s", n, d.MachineStore.URL())
	}

	return nil
}

// writeKeys writes the keys that control-plane machines read.
func writeKeys(ctx context.Context, session *cluster.Session, d *cluster.Desired) error {
	s, sealer, err := session.Env.Stores.State(ctx)
	if err != nil {
		return err
	}

	public, err := pki.LoadPublicBundle(ctx, d.View, session.Name)
	if err != nil {
		return err
	}

	bundle, err := pki.LoadPrivateBundle(ctx, s, sealer, session.Name, public)
	if err != nil {
		return err
	}

	session.UseKubernetesCA(bundle.CAs[pki.KubernetesCA])
	_, err = pki.PublishMachineKeys(ctx, bundle, d.ListedMachineStore(), d.MachineSealer)

	return err
}

// CheckFunctionCode refuses published code of a function that is not Slipway's.
func CheckFunctionCode(ctx context.Context, d *cluster.Desired) error {
	return node.CheckFunctionCode(ctx, d.ListedMachineStore(), d.MachineObjects)
}

// Run writes d.Unpublished to the machine store and makes the node documents current, as an operation with the cluster's
// lock. It refuses manifests that change what machines cannot change in place.
func Run(ctx context.Context, env *cluster.Env, session *cluster.Session, d *cluster.Desired) error {
	state, _, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	return env.RunOperation(
		ctx,
		cluster.OperationRequest{Store: state, Cluster: session.Name, Kind: "publish"},
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			session.UseOperation(op, guarded)
			op.UpdateRecord(func(r *operation.Record) {
				r.Plan = &operation.ChangeCounts{Publish: len(d.Unpublished)}
			})

			changes, err := session.CheckManifestChanges(ctx, d)
			if err := cmp.Or(err, changes.Err()); err != nil {
				return err
			}

			if err := session.RecordPublished(ctx, d); err != nil {
				return err
			}

			if err := WriteObjects(ctx, session, d); err != nil {
				return err
			}

			return WriteRevisions(ctx, session, d)
		},
	)
}
