// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// secretsDirectory is where registry secrets are below the documents of add-ons.
const secretsDirectory = "secrets/"

// Document is a document of an add-on in the state store, which channels name.
type Document struct {
	path string
	body []byte
}

// NewDocument returns a document with a content. path is what channels name it after state://.
func NewDocument(documentPath string, body []byte) (Document, error) {
	if documentPath == "" || path.Join("/", documentPath) != "/"+documentPath {
		return Document{}, diag.WithHint(
			fmt.Errorf("%q is not a path of a document in the state store", documentPath),
			"give what a channel has after state://, such as --path metrics.yaml",
		)
	}

	if strings.HasPrefix(documentPath, secretsDirectory) {
		return Document{}, diag.WithHint(
			fmt.Errorf("%s is a path of a registry secret", documentPath),
			"write it with: slipway addons secrets set",
		)
	}

	if len(body) == 0 {
		return Document{}, diag.WithHint(
			errors.New("the document of an add-on is empty"),
			"give a file with the objects of the add-on",
		)
	}

	return Document{path: documentPath, body: body}, nil
}

// Address returns what channels name the document.
func (d Document) Address() string { return manifest.AddonStateScheme + d.path }

// SHA256 returns the hash of the content, in hexadecimal.
func (d Document) SHA256() string {
	sum := sha256.Sum256(d.body)

	return hex.EncodeToString(sum[:])
}

// PutDocument signs the content of a document and writes it into the state store. One of the same
// path is replaced.
func (s *Session) PutDocument(ctx context.Context, d Document) error {
	key := clusterstate.AddonPrefix(s.Cluster.Metadata.Name) + d.path

	return s.write(ctx, "addon-document", key, d.body)
}
