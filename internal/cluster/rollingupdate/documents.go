// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/publish"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// Running machines apply most changes of their node document themselves. An update waits for those that are about to,
// and a rollback takes such changes back as well.

const (
	// unawareTime is how long a machine may take to read that its group has a new node document: agents look once a
	// minute.
	unawareTime = 75 * time.Second
	// followTime limits the wait for machines that apply a document: they restart components one after the other.
	followTime = 15 * time.Minute
)

// formerVersion is the launch template version of a rollback, and its node document.
type formerVersion struct{ version, document string }

// documentPublisher makes the node documents of former launch template versions current again.
type documentPublisher interface {
	// ReadDocument returns the SHA-256 of the node document of a launch template version; empty if it is not known.
	ReadDocument(ctx context.Context, g rollout.Group, version string) (string, error)
	// ReadVersions returns the versions in a node document of a group of the control plane.
	ReadVersions(ctx context.Context, group, document string) (documentVersions, error)
	// Publish makes documents, by group, the current ones.
	Publish(ctx context.Context, documents map[string]string) error
	// Retry publishes the current documents of groups again, and returns the serials of their revisions.
	Retry(ctx context.Context, groups []string) (map[string]int64, error)
}

// sessionDocuments is the documentPublisher of a cluster.
type sessionDocuments struct {
	*awsMachines
	session *cluster.Session
}

// Publish implements documentPublisher.
func (s sessionDocuments) Publish(ctx context.Context, documents map[string]string) error {
	return publish.ReturnToDocuments(ctx, s.session, documents)
}

// Retry implements documentPublisher.
func (s sessionDocuments) Retry(ctx context.Context, groups []string) (map[string]int64, error) {
	return publish.RetryDocuments(ctx, s.session, groups)
}

// ReadDocument implements documentPublisher.
func (a *awsMachines) ReadDocument(ctx context.Context, g rollout.Group, version string) (string, error) {
	id := templateID(a.scalingGroup(g.Name, g.Slot))
	if id == "" {
		return "", nil
	}

	if err := a.templates.read(ctx, id, []string{version}); err != nil {
		return "", err
	}

	return a.templates.known[id+" "+version].document, nil
}

// returnDocuments makes the node documents of the versions of a rollback current again, so that running machines take
// back what they have applied themselves, and new machines do not apply it.
func (u *updater) returnDocuments(ctx context.Context, o rollout.Observation) error {
	if u.documents == nil {
		return nil
	}

	former := map[string]formerVersion{}
	documents := map[string]string{}
	for _, g := range o.Groups {
		key := groupKey(g.Name, g.Slot)
		version := u.versions[key]
		if version == "" {
			continue
		}

		document, err := u.documents.ReadDocument(ctx, g, version)
		if err != nil {
			return err
		}

		former[key] = formerVersion{version: version, document: document}
		if document != "" {
			documents[g.Name] = document
		}
	}

	u.observer.former = former
	if len(documents) == 0 {
		return nil
	}

	return u.documents.Publish(ctx, documents)
}

// awaitFollowers waits for the machines that are about to apply a node document themselves, and returns the last
// observation. Machines that do not get there in time are treated as they are.
func (u *updater) awaitFollowers(ctx context.Context) (rollout.Observation, error) {
	start := u.now()
	told := false
	for {
		o, err := u.observer.observe(ctx)
		if err != nil {
			return o, err
		}

		waiting := countFollowers(o, u.now().Sub(start))
		if waiting == 0 {
			return o, nil
		}

		if !told {
			u.notify("waiting for %d machines that apply their node document without being replaced", waiting)
			told = true
		}

		if err := sleep(ctx, u.pause()); err != nil {
			return o, err
		}
	}
}

// countFollowers counts the machines that are worth waiting for after a time.
func countFollowers(o rollout.Observation, waited time.Duration) int {
	n := 0
	for _, m := range o.Machines {
		if m.State == rollout.StateRunning &&
			(m.IsApplying && waited < followTime || m.IsUnaware && waited < unawareTime) {
			n++
		}
	}

	return n
}

// sleep waits for a time or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
