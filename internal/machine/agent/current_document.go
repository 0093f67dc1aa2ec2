// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// readCurrentRevision reads the current revision of the machine's group now, and whether there is one.
func (a *Agent) readCurrentRevision(ctx context.Context) (node.Revision, bool, error) {
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, node.RevisionsKey(a.doc.Cluster, a.doc.Role))
	if err != nil || a.Changing == nil {
		return node.Revision{}, false, nil // a document from elsewhere has no revisions
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	body, _, err := a.Changing.ReadIfChanged(ctx, url, "")
	if errors.Is(err, store.ErrNotFound) {
		return node.Revision{}, false, nil
	}

	if err != nil {
		return node.Revision{}, false, err
	}

	revisions, err := node.VerifyRevisions(body, a.doc.Trust.KubernetesCA, a.doc.Cluster, a.doc.Role)
	if err != nil {
		return node.Revision{}, false, err
	}

	current, published := revisions.Groups[a.doc.Group]

	return current, published, nil
}

// checkDocumentCurrent returns a notReadyError unless the current revision has the slots of this machine's document.
func (a *Agent) checkDocumentCurrent(ctx context.Context) error {
	current, published, err := a.readCurrentRevision(ctx)
	if err != nil {
		return err
	}

	if !published {
		return newNotReadyError("no revision of the node document is published yet")
	}

	doc, err := a.readCurrentDocument(ctx, current)
	if err != nil {
		return err
	}

	if !slices.Equal(doc.Slots, a.doc.Slots) {
		return newNotReadyError("this machine does not have the current slots of the control plane yet")
	}

	return nil
}

// checkInControlPlane returns a notReadyError if the current revision of the document does not have this machine's slot: its
// member must not join, since it would be removed. A machine with a newer document than the revisions has its slot.
func (a *Agent) checkInControlPlane(ctx context.Context) error {
	current, published, err := a.readCurrentRevision(ctx)
	status := a.documentStatus.Load()
	if err != nil || !published || status == nil || !current.Knows(status.Followed) {
		return err
	}

	doc, err := a.readCurrentDocument(ctx, current)
	if err != nil {
		return err
	}

	if _, there := doc.Slot(a.Boot.Slot); !there {
		return newNotReadyError("slot %s is not in the control plane any more", a.Boot.Slot)
	}

	return nil
}

// readCurrentDocument returns the document of a revision: that of this machine, or one that it reads from the store.
func (a *Agent) readCurrentDocument(ctx context.Context, current node.Revision) (node.Document, error) {
	own, err := a.doc.Marshal()
	if err != nil || hashOf(own) == current.Document {
		return a.doc, err
	}

	doc, err := a.openDocument(ctx, current)
	if err != nil {
		return node.Document{}, fmt.Errorf("read revision %d of the node document: %w", current.Serial, err)
	}

	return doc, nil
}

// openDocument reads the document of a revision from the store, and verifies its hash.
func (a *Agent) openDocument(ctx context.Context, current node.Revision) (node.Document, error) {
	key := node.DocumentKey(a.doc.Cluster, a.doc.Role, a.doc.Group, current.Document)
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, key)
	if err != nil {
		return node.Document{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	in, err := a.Open.Open(ctx, url)
	if err != nil {
		return node.Document{}, err
	}

	body, err := io.ReadAll(io.LimitReader(in, maxDocumentBytes))
	if err = errors.Join(err, in.Close()); err != nil {
		return node.Document{}, err
	}

	if got := hashOf(body); got != current.Document {
		return node.Document{}, fmt.Errorf("%s has SHA-256 %s, want %s", url, got, current.Document)
	}

	return node.ParseDocument(body)
}

// maxDocumentBytes limits the size of a node document.
const maxDocumentBytes = 4 << 20
