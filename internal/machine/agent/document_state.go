// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Files of the machine's node document, on the root disk.
const (
	documentStateFile = "/var/lib/slipway/document.json"
	documentDir       = "/var/lib/slipway/documents"
)

// effectiveFile returns the path of a document that this machine has or had.
func effectiveFile(sum string) string { return documentDir + "/" + sum + ".json" }

// readDocumentState returns what the machine remembers. A state that is missing, damaged or from another instance
// begins anew: the document of the user data is always a good start.
func readDocumentState(a *Agent) follow.State {
	fresh := follow.State{Instance: a.instance.ID, Boot: a.Boot.Document.SHA256}
	if !a.Root.Exists(documentStateFile) {
		return fresh
	}

	var s follow.State
	body, err := a.Root.Read(documentStateFile)
	if err == nil {
		err = json.Unmarshal(body, &s)
	}

	if err != nil {
		a.Log.Warn("cannot read which node document this machine has; using that of its user data",
			slog.Any("error", err))
		return fresh
	}

	if !s.IsOf(fresh.Instance, fresh.Boot) {
		return fresh
	}

	return s
}

// writeDocumentState stores s, and from then on the agent has it.
func (a *Agent) writeDocumentState(s follow.State) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode %s: %w", documentStateFile, err)
	}

	if _, err := a.Root.Write(File{
		Path:    documentStateFile,
		Body:    append(body, '\n'),
		Mode:    0o600,
		Durable: true,
	}); err != nil {
		return err
	}

	a.documentState = s

	return nil
}

// readEffectiveDocument returns the stored document with this hash.
func readEffectiveDocument(root *HostFS, sum string) (node.Document, error) {
	body, err := root.Read(effectiveFile(sum))
	if err != nil {
		return node.Document{}, err
	}

	if got := hashOf(body); got != sum {
		return node.Document{}, HashError{Name: "document.json", URL: effectiveFile(sum), Want: sum, Got: got}
	}

	return node.ParseDocument(body)
}

// storeEffectiveDocument writes a document of this machine, and returns its hash.
func (a *Agent) storeEffectiveDocument(d node.Document) (string, error) {
	body, err := d.Marshal()
	if err != nil {
		return "", err
	}

	sum := hashOf(body)
	_, err = a.Root.Write(File{
		Path:    effectiveFile(sum),
		Body:    body,
		Mode:    0o600,
		Durable: true,
	})

	return sum, err
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)

	return hex.EncodeToString(sum[:])
}
