// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// kubeconfigFile is the part of a client-go kubeconfig that machines and operators need. client-go itself is left out so
// that the agent stays small.
type kubeconfigFile struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	Clusters       []namedCluster `json:"clusters"`
	Contexts       []namedContext `json:"contexts"`
	Users          []namedUser    `json:"users"`
	CurrentContext string         `json:"current-context"`
}

type namedCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		Server string `json:"server"`
		CA     []byte `json:"certificate-authority-data"`
		TLS    string `json:"tls-server-name,omitempty"`
	} `json:"cluster"`
}

type namedContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type namedUser struct {
	Name string `json:"name"`
	User struct {
		Cert []byte `json:"client-certificate-data"`
		Key  []byte `json:"client-key-data"`
	} `json:"user"`
}

// KubeconfigOptions is what a kubeconfig holds.
type KubeconfigOptions struct {
	// Name of the cluster entry, context and user.
	Name string
	// Server URL, such as https://127.0.0.1:6443.
	Server string
	// TLSServerName is the name the server must prove, if it is not the one in Server.
	TLSServerName string
	// CAPEM trusts the server; CertPEM and KeyPEM authenticate the client.
	CAPEM, CertPEM, KeyPEM []byte
}

// RenderKubeconfig renders a kubeconfig with one context. It holds a private key: write it with mode 0600.
func RenderKubeconfig(a KubeconfigOptions) ([]byte, error) {
	k := kubeconfigFile{APIVersion: "v1", Kind: "Config", CurrentContext: a.Name}
	cluster := namedCluster{Name: a.Name}
	cluster.Cluster.Server = a.Server
	cluster.Cluster.CA = a.CAPEM
	cluster.Cluster.TLS = a.TLSServerName
	context := namedContext{Name: a.Name}
	context.Context.Cluster = a.Name
	context.Context.User = a.Name
	user := namedUser{Name: a.Name}
	user.User.Cert = a.CertPEM
	user.User.Key = a.KeyPEM
	k.Clusters = []namedCluster{cluster}
	k.Contexts = []namedContext{context}
	k.Users = []namedUser{user}
	out, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("render kubeconfig %s: %w", a.Name, err)
	}

	return out, nil
}
