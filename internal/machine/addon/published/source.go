// SPDX-License-Identifier: Apache-2.0

package published

import (
	"strings"
	"time"
)

// Source is where the control plane reads a channel from, at an interval. The channel is then not
// rendered: it is a directory with the file channel.yaml and the manifests that it names.
type Source struct {
	// OCI is the reference of an artifact in a container registry, such as
	// oci://registry.example.com/channels/base:stable. Empty for a source in Git.
	OCI string `json:"oci,omitempty"`
	// Git is the address of a repository, such as https://example.com/team/addons.git.
	Git string `json:"git,omitempty"`
	// Ref is the branch or tag of a Git repository.
	Ref string `json:"ref,omitempty"`
	// Path of the directory with channel.yaml. Empty: the root.
	Path string `json:"path,omitempty"`
	// Interval between two looks, before jitter.
	Interval time.Duration `json:"interval"`
	// PublicKeys verify what is read: keys in PEM for artifacts, SSH keys for commits. Empty:
	// nothing is verified.
	PublicKeys []string `json:"publicKeys,omitempty"`
	// Credentials for the registry or the repository. Empty: none, or those of the machine's role
	// for Amazon ECR.
	Credentials Credentials `json:"credentials,omitzero"`
	// Values of the cluster that parameters are taken from.
	Values map[string]string `json:"values,omitempty"`
}

// Credentials are secret. They are stored encrypted, and never printed.
type Credentials struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// String implements [fmt.Stringer]: credentials in a log or in an error are hidden.
func (Credentials) String() string { return "(hidden)" }

// GoString implements [fmt.GoStringer].
func (Credentials) GoString() string { return "(hidden)" }

// IsFixed reports whether nobody but who has a given key can change what is read: a digest never
// changes, and revisions that no key has signed are refused.
func (s Source) IsFixed() bool {
	return len(s.PublicKeys) > 0 || strings.Contains(s.OCI, "@sha256:")
}

// String returns the address of the source, as it is printed.
func (s Source) String() string {
	address := s.OCI
	if s.Git != "" {
		address = s.Git + "#" + s.Ref
	}

	if s.Path != "" {
		address += ":" + s.Path
	}

	return address
}
