// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

// RevisionsKind is the kind of Revisions; its apiVersion is v1alpha1.APIVersion.
const RevisionsKind = "NodeDocumentRevisions"

// revisionsPurpose separates the signatures of revisions from others of the same key.
const revisionsPurpose = "node document revisions v1"

// maxFormerDocuments limits the list of former documents of a group. A machine whose document is not in it follows
// no revision.
const maxFormerDocuments = 500

// Revisions says which node document each group of one role has now. Running machines follow it. It is the only
// object that machines read whose content changes, so it is signed with the key of the Kubernetes CA, which every
// machine knows from its node document.
type Revisions struct {
	// APIVersion is v1alpha1.APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is RevisionsKind.
	Kind string `json:"kind"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Role of the groups.
	Role v1alpha1.Role `json:"role"`
	// Groups by name.
	Groups map[string]Revision `json:"groups"`
}

// Revision is the current node document of a group.
type Revision struct {
	// Serial grows by one with each revision, also if an earlier document becomes current again.
	Serial int64 `json:"serial"`
	// Document is the SHA-256 of the node document in lower-case hex.
	Document string `json:"document"`
	// Former are the SHA-256 of the documents before, the oldest first. A machine follows only a revision that
	// knows its document, so that it never returns to an older one.
	Former []string `json:"former,omitempty"`
}

// Knows reports whether a document is the revision's or an earlier one of the group.
func (r Revision) Knows(document string) bool {
	return r.Document == document || slices.Contains(r.Former, document)
}

// next returns the revision that makes document current; r itself if it is.
func (r Revision) next(document string) Revision {
	if r.Document == document {
		return r
	}

	out := Revision{Serial: r.Serial + 1, Document: document, Former: slices.Clone(r.Former)}
	if r.Document != "" {
		out.Former = slices.DeleteFunc(out.Former, func(d string) bool { return d == r.Document })
		out.Former = append(out.Former, r.Document)
	}

	out.Former = out.Former[max(0, len(out.Former)-maxFormerDocuments):]

	return out
}

// RevisionsKey returns the key of the Revisions of a role in the machine store.
func RevisionsKey(cluster string, role v1alpha1.Role) string {
	return DocumentPrefix(cluster, role) + "revisions.json"
}

// DocumentKey returns the key of a node document in the machine store.
func DocumentKey(cluster string, role v1alpha1.Role, group, sha256 string) string {
	return DocumentPrefix(cluster, role) + "documents/" + group + "-" + sha256 + ".json"
}

// ParseDocumentKey returns the group and the SHA-256 of a document by its key. It reports false for other keys.
func ParseDocumentKey(key string) (group, sha256 string, ok bool) {
	name, isDocument := strings.CutSuffix(path.Base(key), ".json")
	end := strings.LastIndex(name, "-")
	if !isDocument || end <= 0 || len(name)-end-1 != sha256Digits {
		return "", "", false
	}

	return name[:end], name[end+1:], true
}

// sha256Digits is the length of a SHA-256 in hex.
const sha256Digits = 64

// DocumentSHA256 returns the SHA-256 by which a document is stored, in lower-case hex.
func (d Document) DocumentSHA256() (string, error) {
	body, err := d.Marshal()
	if err != nil {
		return "", err
	}

	return hexSHA256(body), nil
}

// RevisionsInput is the input of NewRevisions.
type RevisionsInput struct {
	// Cluster is the name of the cluster, and Role the role of the groups.
	Cluster string
	Role    v1alpha1.Role
	// Former revisions; zero if there are none or if they cannot be trusted.
	Former Revisions
	// Documents are the SHA-256 of the current documents by group.
	Documents map[string]string
	// FirstSerial is the serial of a group's first revision. A time in seconds is greater than any serial of revisions
	// that were lost.
	FirstSerial int64
	// Published are the SHA-256 of all documents in the machine store by group. One of them may be in a launch template
	// although it was never current, because an apply was stopped before its end.
	Published map[string][]string
	// Renewed are the groups whose document is published again with a new serial, so that machines that refused it try
	// it again.
	Renewed []string
}

// NewRevisions returns the revisions of a role that make documents current. Groups that are no longer there are left
// out.
func NewRevisions(in RevisionsInput) Revisions {
	out := Revisions{
		APIVersion: v1alpha1.APIVersion,
		Kind:       RevisionsKind,
		Cluster:    in.Cluster,
		Role:       in.Role,
		Groups:     map[string]Revision{},
	}
	for group, document := range in.Documents {
		former, known := in.Former.Groups[group]
		if !known {
			former.Serial = in.FirstSerial - 1
		}

		missing := slices.DeleteFunc(slices.Clone(in.Published[group]), func(d string) bool {
			return d == document || former.Knows(d)
		})
		former.Former = append(missing, former.Former...)
		if former.Document == document && slices.Contains(in.Renewed, group) {
			former.Serial++
		}

		out.Groups[group] = former.next(document)
	}

	return out
}

// Lacks reports whether another document than the given one (SHA-256 by group) is current in one of the groups.
func (r Revisions) Lacks(documents map[string]string) bool {
	for group, document := range documents {
		if r.Groups[group].Document != document {
			return true
		}
	}

	return false
}

// signedRevisions is the form in which Revisions are stored.
func signedRevisions() signedForm { return signedForm{name: "revisions", purpose: revisionsPurpose} }

// Sign encodes and signs the revisions with the key of the Kubernetes CA.
func (r Revisions) Sign(key pki.Key) ([]byte, error) {
	return signedRevisions().sign(r, r.Cluster, key)
}

// VerifyRevisions decodes the output of Sign. It fails unless a certificate of the Kubernetes CA (PEM) has the key
// that signed, and unless the revisions are those of the cluster and role.
func VerifyRevisions(body []byte, caPEM string, cluster string, role v1alpha1.Role) (Revisions, error) {
	var out Revisions
	if err := signedRevisions().verify(body, caPEM, cluster, &out); err != nil {
		return Revisions{}, err
	}

	if out.APIVersion != v1alpha1.APIVersion || out.Kind != RevisionsKind || out.Cluster != cluster || out.Role != role {
		return Revisions{}, fmt.Errorf("the revisions are %s %s of cluster %s and role %s, want cluster %s and role %s",
			out.APIVersion, out.Kind, out.Cluster, out.Role, cluster, role)
	}

	return out, nil
}

// SiblingURL returns the URL of another object of the machine store, by the URL of a node document. It fails for a
// URL that is not that of a node document of the cluster.
func SiblingURL(documentURL, cluster, key string) (string, error) {
	base, _, found := strings.Cut(documentURL, "/"+MachinePrefix(cluster))
	if !found {
		return "", fmt.Errorf("%s is not in the machine store of cluster %s", documentURL, cluster)
	}

	return base + "/" + key, nil
}
