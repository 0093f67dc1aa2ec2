// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// currentDocument is the node document of the machine's group that is current now. Running machines learn of it later.
type currentDocument struct{ agent *Agent }

func currentOf(a *Agent) currentDocument { return currentDocument{a} }

// readRevision reads the current revision of the machine's group now, and whether there is one.
func (c currentDocument) readRevision(ctx context.Context) (node.Revision, bool, error) {
	a := c.agent
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

// checkSlots returns a notReadyError unless the current revision has the slots of this machine's document.
func (c currentDocument) checkSlots(ctx context.Context) error {
	current, published, err := c.readRevision(ctx)
	if err != nil {
		return err
	}

	if !published {
		return newNotReadyError("no revision of the node document is published yet")
	}

	doc, err := c.read(ctx, current)
	if err != nil {
		return err
	}

	if !slices.Equal(doc.Slots, c.agent.doc.Slots) {
		return newNotReadyError("this machine does not have the current slots of the control plane yet")
	}

	return nil
}

// checkKnowsSlots returns an error if the current revision, if there is one, has a slot that this machine's document does not have. It
// also works on a machine of a slot that leaves, and with a document of a newer version, of which it reads nothing else.
func (c currentDocument) checkKnowsSlots(ctx context.Context) error {
	current, published, err := c.readRevision(ctx)
	if err != nil || !published {
		return err
	}

	isOwn, err := c.isOwn(current)
	if err != nil || isOwn {
		return err
	}

	body, err := c.readBody(ctx, current)
	if err != nil {
		return err
	}

	var doc struct {
		Slots []struct {
			Name string `json:"name"`
		} `json:"slots"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("read the slots of revision %d of the node document: %w", current.Serial, err)
	}

	for _, slot := range doc.Slots {
		if _, known := c.agent.doc.Slot(slot.Name); !known {
			return newNotReadyError("this machine does not know slot %s of the control plane yet", slot.Name)
		}
	}

	return nil
}

// checkOwnSlot returns a notReadyError if the current revision of the document does not have this machine's slot: its
// member must not join, since it would be removed. A machine with a newer document than the revisions has its slot.
func (c currentDocument) checkOwnSlot(ctx context.Context) error {
	a := c.agent
	current, published, err := c.readRevision(ctx)
	status := a.documentStatus.Load()
	if err != nil || !published || status == nil || !current.Knows(status.Followed) {
		return err
	}

	doc, err := c.read(ctx, current)
	if err != nil {
		return err
	}

	if _, there := doc.Slot(a.Boot.Slot); !there {
		return newNotReadyError("slot %s is not in the control plane any more", a.Boot.Slot)
	}

	return nil
}

// isOwn reports whether this machine's document is that of a revision.
func (c currentDocument) isOwn(current node.Revision) (bool, error) {
	own, err := c.agent.doc.Marshal()

	return err == nil && hashOf(own) == current.Document, err
}

// read returns the document of a revision: that of this machine, or one that it reads from the store.
func (c currentDocument) read(ctx context.Context, current node.Revision) (node.Document, error) {
	isOwn, err := c.isOwn(current)
	if err != nil || isOwn {
		return c.agent.doc, err
	}

	body, err := c.readBody(ctx, current)
	if err != nil {
		return node.Document{}, err
	}

	doc, err := node.ParseDocument(body)
	if err != nil {
		return node.Document{}, fmt.Errorf("read revision %d of the node document: %w", current.Serial, err)
	}

	return doc, nil
}

// readBody reads the text of a revision's document from the store, and verifies its hash.
func (c currentDocument) readBody(ctx context.Context, current node.Revision) ([]byte, error) {
	body, err := c.download(ctx, current)
	if err != nil {
		return nil, fmt.Errorf("read revision %d of the node document: %w", current.Serial, err)
	}

	return body, nil
}

func (c currentDocument) download(ctx context.Context, current node.Revision) ([]byte, error) {
	a := c.agent
	key := node.DocumentKey(a.doc.Cluster, a.doc.Role, a.doc.Group, current.Document)
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, key)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	in, err := a.Open.Open(ctx, url)
	if err != nil {
		return nil, err
	}

	body, err := io.ReadAll(io.LimitReader(in, maxDocumentBytes))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}

	if got := hashOf(body); got != current.Document {
		return nil, fmt.Errorf("%s has SHA-256 %s, want %s", url, got, current.Document)
	}

	return body, nil
}

// maxDocumentBytes limits the size of a node document.
const maxDocumentBytes = 4 << 20
