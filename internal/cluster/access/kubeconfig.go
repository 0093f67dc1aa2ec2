// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// kubeconfigExtension marks the entries that slipway created.
const kubeconfigExtension = "slipway.dev/made"

// MergeKubeconfig writes access into a kubeconfig file as the cluster, user and context of its name, and
// makes it the current context. Entries that slipway did not create are never changed: one of this name is
// an error.
func MergeKubeconfig(file string, access pki.KubeconfigOptions) error {
	config, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		config = clientcmdapi.NewConfig()
		err = nil
	}

	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", file, err)
	}

	if err := refuseForeignEntries(config, access.Name); err != nil {
		return fmt.Errorf("merge into kubeconfig %s: %w", file, err)
	}

	mark := func() map[string]runtime.Object {
		return map[string]runtime.Object{
			kubeconfigExtension: &runtime.Unknown{
				Raw:         []byte(`"true"`),
				ContentType: runtime.ContentTypeJSON,
			},
		}
	}

	config.Clusters[access.Name] = &clientcmdapi.Cluster{
		Server:                   access.Server,
		TLSServerName:            access.TLSServerName,
		CertificateAuthorityData: access.CAPEM,
		Extensions:               mark(),
	}

	config.AuthInfos[access.Name] = newAuthInfo(access)
	config.AuthInfos[access.Name].Extensions = mark()
	namespace := ""
	if old := config.Contexts[access.Name]; old != nil {
		namespace = old.Namespace // set by the user since
	}

	config.Contexts[access.Name] = &clientcmdapi.Context{
		Cluster:    access.Name,
		AuthInfo:   access.Name,
		Namespace:  namespace,
		Extensions: mark(),
	}

	config.CurrentContext = access.Name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("render kubeconfig %s: %w", file, err)
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}

	if err := privatefile.Write(file, text); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", file, err)
	}

	return nil
}

// newAuthInfo returns the user entry: a command that prints credentials, else a certificate.
func newAuthInfo(access pki.KubeconfigOptions) *clientcmdapi.AuthInfo {
	if len(access.Command) == 0 {
		return &clientcmdapi.AuthInfo{ClientCertificateData: access.CertPEM, ClientKeyData: access.KeyPEM}
	}

	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion:      pki.ExecAPIVersion,
		Command:         access.Command[0],
		Args:            access.Command[1:],
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		InstallHint:     pki.ExecInstallHint,
	}}
}

// refuseForeignEntries returns an error that names the entry of this name that slipway did not create.
func refuseForeignEntries(config *clientcmdapi.Config, name string) error {
	foreign := func(kind string, extensions map[string]runtime.Object) error {
		if _, marked := extensions[kubeconfigExtension]; marked {
			return nil
		}

		return diag.WithHint(
			fmt.Errorf("it has a %s %s that slipway did not create", kind, name),
			"rename that entry, or set --kubeconfig to another file",
		)
	}
	if c, ok := config.Clusters[name]; ok {
		if err := foreign("cluster", c.Extensions); err != nil {
			return err
		}
	}

	if u, ok := config.AuthInfos[name]; ok {
		if err := foreign("user", u.Extensions); err != nil {
			return err
		}
	}

	if c, ok := config.Contexts[name]; ok {
		return foreign("context", c.Extensions)
	}

	return nil
}
