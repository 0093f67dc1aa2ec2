// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// forgetter removes what 'slipway export kubeconfig' has written for a cluster that is deleted.
type forgetter struct {
	*app

	// file is the kubeconfig; empty: it has no entry of the cluster.
	file string
	// authority is the certificate authority of the cluster.
	authority []byte
}

// newForgetter looks for the entry of a cluster in the kubeconfig, before its state is deleted. The entry of another
// cluster with this name has another authority. Whatever fails here must not stop a deletion.
func newForgetter(ctx context.Context, a *app, name string) forgetter {
	file, err := exporter{a}.kubeconfigFile("")
	if err != nil {
		return forgetter{}
	}

	if entry, err := access.FindKubeconfigEntry(file, name); err != nil || len(entry) == 0 {
		return forgetter{}
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return forgetter{}
	}

	public, err := pki.LoadPublicBundle(ctx, s, name)
	if err != nil {
		return forgetter{}
	}

	return forgetter{app: a, file: file, authority: []byte(public.CAs[pki.KubernetesCA])}
}

// forget removes the entry of the cluster, which was deleted.
func (f forgetter) forget(name string) {
	if f.file == "" {
		return
	}

	removed, err := access.RemoveKubeconfigEntry(f.file, name, f.authority)

	switch {
	case err != nil:
		f.printMessage("context %s of the deleted cluster is still in your kubeconfig: %v", name, err)
	case removed:
		f.printMessage("context %s was removed from %s", name, f.file)
	}
}
