// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// SignedChange is a change of documents that are signed.
type SignedChange struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Region of the cluster, by its manifest.
	Region string
	// Before are the documents as they were verified. Zero: they are not signed, and the change is
	// not signed either: the next apply decides about all of them.
	Before clusterstate.Signed
	// Documents are the new bodies by key; nil: the object is deleted.
	Documents map[string][]byte
}

// RunSigned signs the documents of a change, has them written, takes the signature of what they
// replaced back, and writes the new revision to AWS: from then on nobody can restore the earlier
// documents with their signature. It fails if somebody has restored earlier ones already, which it
// would sign. guarded is the state store while the caller holds the lock of the cluster.
func (env *Env) RunSigned(
	ctx context.Context,
	guarded store.Store,
	c SignedChange,
	write func() error,
) error {
	mark, err := readRevisionMark(ctx, env, guarded, c.Cluster, c.Region)
	if err != nil {
		return err
	}

	if err := mark.checkCopy(); err != nil {
		return err
	}

	if err := mark.checkNotOlder(ctx, guarded, c.Before); err != nil {
		return err
	}

	if !c.Before.Exists() {
		return write()
	}

	state, err := operation.Fenced(ctx, guarded) // the signature is checked by its version
	if err != nil {
		return err
	}

	ca, err := env.openAuthority(ctx, c.Cluster, c.Before.Issuer)
	if err != nil {
		return err
	}

	now := max(env.Now().Unix(), mark.revision+1)
	signer := clusterstate.NewSigner(state, c.Cluster, ca.Key(), now, c.Before)
	sums := clusterstate.HashBodies(c.Documents)
	if err := signer.Begin(ctx, sums); err != nil {
		return err
	}

	if err := write(); err != nil {
		return err
	}

	if _, err := operation.Fenced(ctx, guarded); err != nil { // the lease may have ended meanwhile
		return err
	}

	if err := signer.Finish(ctx, sums); err != nil {
		return err
	}

	return mark.writeFenced(ctx, guarded, signer.Signed().Revision)
}

// openAuthority decrypts the key of the Kubernetes CA. It fails unless the key is that of issuer,
// the certificate (PEM) with which documents were verified.
func (env *Env) openAuthority(ctx context.Context, name string, issuer []byte) (pki.CA, error) {
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return pki.CA{}, err
	}

	ca, err := pki.OpenCA(ctx, state, sealer, name, pki.KubernetesCA)
	if err != nil {
		return pki.CA{}, err
	}

	if !bytes.Equal(ca.Issuer(), issuer) {
		return pki.CA{}, clusterstate.NewAuthorityError(name, state, ca.Issuer(), issuer)
	}

	return ca, nil
}
