// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// CheckSigner checks the signature of documents that no plan reads, such as those of add-ons, which were compared with it:
// it is that of the cluster's own Kubernetes CA, whose key decides, it was not deleted, and it is not older than what was
// accepted last. See docs/design/0022.
func CheckSigner(ctx context.Context, env *Env, c v1alpha1.Cluster, signed clusterstate.Signed) error {
	name := c.Metadata.Name
	state, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}

	ca, err := pki.OpenCA(ctx, state, sealer, name, pki.KubernetesCA)
	if err != nil {
		return err
	}

	if signed.Exists() && !bytes.Equal(ca.Issuer(), signed.Issuer) {
		return clusterstate.NewAuthorityError(name, state, ca.Issuer(), signed.Issuer)
	}

	mark, err := readRevisionMark(ctx, env, state, name, c.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return err
	}

	switch {
	case signed.Revision < mark.revision:
		return newOlderError(ctx, state, name, signed, mark.revision)
	case !signed.Exists() && ca.Key().SignsState():
		return clusterstate.NewMissingSignatureError(name, state)
	case !signed.Exists():
		var findings diag.Findings
		findings.Warnf(
			"cluster/"+name,
			"",
			"check that the documents of its add-ons are yours; the next apply of the cluster signs them",
			"has no signature in %s: whoever can write there could have changed the documents of its add-ons",
			state.URL(),
		)
		env.Warn(findings)
	}

	return nil
}
