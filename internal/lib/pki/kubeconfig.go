// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// kubeconfigFile contains the fields of a kubeconfig that machines and operators need. The package
// does not import client-go, which would make the agent larger.
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
		Cert []byte       `json:"client-certificate-data,omitempty"`
		Key  []byte       `json:"client-key-data,omitempty"`
		Exec *execProgram `json:"exec,omitempty"`
	} `json:"user"`
}

// execProgram is a program that prints credentials.
type execProgram struct {
	APIVersion      string   `json:"apiVersion"`
	Command         string   `json:"command"`
	Args            []string `json:"args"`
	InteractiveMode string   `json:"interactiveMode"`
	InstallHint     string   `json:"installHint"`
}

// ExecAPIVersion is the version of the protocol between kubectl and a program that prints credentials.
const ExecAPIVersion = "client.authentication.k8s.io/v1"

// ExecInstallHint is what kubectl says if it does not find the program.
const ExecInstallHint = "put slipway into a directory of PATH"

// KubeconfigOptions describe a kubeconfig.
type KubeconfigOptions struct {
	// Name of the cluster entry, the context and the user.
	Name string
	// Server URL, such as https://127.0.0.1:6443.
	Server string
	// TLSServerName is the name to verify in the certificate of the server, if it differs from the
	// host of Server.
	TLSServerName string
	// CAPEM is the trust bundle for the server. CertPEM and KeyPEM authenticate the client.
	CAPEM, CertPEM, KeyPEM []byte
	// Command prints credentials when they are needed, instead of CertPEM and KeyPEM: the program and its arguments.
	Command []string
}

// RenderKubeconfig returns a kubeconfig with one context. It contains a private key, unless it has a command: write it
// with mode 0600.
func RenderKubeconfig(o KubeconfigOptions) ([]byte, error) {
	k := kubeconfigFile{APIVersion: "v1", Kind: "Config", CurrentContext: o.Name}
	cluster := namedCluster{Name: o.Name}
	cluster.Cluster.Server = o.Server
	cluster.Cluster.CA = o.CAPEM
	cluster.Cluster.TLS = o.TLSServerName
	context := namedContext{Name: o.Name}
	context.Context.Cluster = o.Name
	context.Context.User = o.Name
	user := namedUser{Name: o.Name}
	user.User.Cert = o.CertPEM
	user.User.Key = o.KeyPEM
	if len(o.Command) > 0 {
		user.User.Exec = &execProgram{
			APIVersion:      ExecAPIVersion,
			Command:         o.Command[0],
			Args:            o.Command[1:],
			InteractiveMode: "Never",
			InstallHint:     ExecInstallHint,
		}
	}

	k.Clusters = []namedCluster{cluster}
	k.Contexts = []namedContext{context}
	k.Users = []namedUser{user}
	out, err := yaml.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("render kubeconfig %s: %w", o.Name, err)
	}

	return out, nil
}
