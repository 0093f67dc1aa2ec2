// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// FindKubeconfigEntry returns the certificate authority of the cluster in a kubeconfig file that slipway wrote under a
// name. It returns nil if there is no such file or entry, or if somebody else created one of the entries of that name.
func FindKubeconfigEntry(file, name string) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}

	return ownAuthority(config, name), nil
}

// ownAuthority returns the certificate authority of the cluster that slipway wrote under a name; nil if there is none.
func ownAuthority(config *clientcmdapi.Config, name string) []byte {
	entry := config.Clusters[name]
	if entry == nil || refuseForeignEntries(config, name) != nil {
		return nil
	}

	return entry.CertificateAuthorityData
}

// RemoveKubeconfigEntry removes the cluster, the user and the context that [MergeKubeconfig] wrote under a name, if the
// cluster still has this certificate authority. If that context is the current one, no context is current afterwards. It
// reports whether something was removed. Entries of others are never changed.
func RemoveKubeconfigEntry(file, name string, authority []byte) (bool, error) {
	found, err := FindKubeconfigEntry(file, name)
	if err != nil || len(found) == 0 || !bytes.Equal(bytes.TrimSpace(found), bytes.TrimSpace(authority)) {
		return false, err
	}

	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return false, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}

	removeEntries(config, name)
	text, err := clientcmd.Write(*config)
	if err != nil {
		return false, fmt.Errorf("render kubeconfig %s: %w", file, err)
	}

	if err := privatefile.Write(file, text); err != nil {
		return false, fmt.Errorf("write kubeconfig %s: %w", file, err)
	}

	return true, nil
}

// removeEntries removes the entries of a name.
func removeEntries(config *clientcmdapi.Config, name string) {
	delete(config.Clusters, name)
	delete(config.AuthInfos, name)
	delete(config.Contexts, name)
	if config.CurrentContext == name {
		config.CurrentContext = ""
	}
}
