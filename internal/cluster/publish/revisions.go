// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// nudgeTimeout limits the attempt to tell running machines that they have a new document. Without it, they find out
// within a minute.
const nudgeTimeout = 8 * time.Second

// maxNudges limits the requests that run at the same time.
const maxNudges = 16

// WriteRevisions makes the node documents of d the current ones, and tells running machines to look at them. Call it
// after everything that the documents refer to exists.
func WriteRevisions(ctx context.Context, session *cluster.Session, d *cluster.Desired) error {
	changed, err := session.PublishRevisions(ctx, d)
	if err != nil {
		return err
	}

	waiting, err := cluster.NewLaunchPublisher(session, d).Publish(ctx)
	if err != nil {
		return err
	}

	if len(waiting) > 0 {
		session.Env.Notifyf("Karpenter launches machines of %s as before until: slipway rolling-update %s",
			strings.Join(waiting, ", "), session.Name)
	}

	return tellMachines(ctx, session, changed, d.Plan.Steps)
}

// WriteReturning makes documents of d current that were current before, and tells running machines. Call it before
// anything else is changed; WriteRevisions does the rest.
func WriteReturning(ctx context.Context, session *cluster.Session, d *cluster.Desired) error {
	changed, err := session.PublishReturning(ctx, d)
	if err != nil {
		return err
	}

	return tellMachines(ctx, session, changed, d.Plan.Steps)
}

// ReturnToDocuments makes former node documents (by group, as SHA-256) current again, and tells running machines.
func ReturnToDocuments(ctx context.Context, session *cluster.Session, documents map[string]string) error {
	changed, err := session.PublishFormerDocuments(ctx, documents)
	if err != nil {
		return err
	}

	return tellMachines(ctx, session, changed, nil)
}

// RetryDocuments lets the machines of groups that refused their node document try it again. The result is the serial of
// each group's new revision.
func RetryDocuments(ctx context.Context, session *cluster.Session, groups []string) (map[string]int64, error) {
	renewed, err := session.RenewRevisions(ctx, groups)
	if err != nil || len(renewed) == 0 {
		return nil, err
	}

	serials := map[string]int64{}
	changed := map[string]string{}
	for group, r := range renewed {
		serials[group] = r.Serial
		// Agents look when the value changes. The document is the same.
		changed[group] = fmt.Sprintf("%s %d", r.Document, r.Serial)
	}

	names := strings.Join(slices.Sorted(maps.Keys(changed)), ", ")
	session.Env.Notifyf("machines of %s that refused their node document try it again", names)
	if err := nudgeNodes(ctx, session, changed); err != nil && ctx.Err() == nil {
		session.Env.Notifyf("they look for it within a minute, because they could not be told: %v", err)
	}

	return serials, ctx.Err()
}

// tellMachines tells the running machines of groups that they have another node document. steps are those of the plan
// that changed the documents: an operator is not told that machines follow a document of which they apply nothing.
func tellMachines(ctx context.Context, session *cluster.Session, changed map[string]string, steps []plan.Step) error {
	if len(changed) == 0 {
		return nil
	}

	following := slices.DeleteFunc(slices.Sorted(maps.Keys(changed)), func(group string) bool {
		return explain.FollowsNothing(steps, group)
	})
	if len(following) > 0 {
		session.Env.Notifyf("running machines of %s follow their new node document", strings.Join(following, ", "))
	}

	if err := nudgeNodes(ctx, session, changed); err != nil && ctx.Err() == nil {
		session.Env.Notifyf("they look for it within a minute, because they could not be told: %v", err)
	}

	return ctx.Err()
}

// nudgeNodes sets an annotation on the nodes of the groups, at which their agents look for the new document.
func nudgeNodes(ctx context.Context, session *cluster.Session, documents map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	state, sealer, err := session.Env.Stores.State(ctx)
	if err != nil {
		return err
	}

	client, err := access.NewKubeClient(ctx, session.Config, access.Request{
		Store:   state,
		Sealer:  sealer,
		Cluster: session.Name,
		User:    session.Env.User,
		Now:     session.Env.Now,
	})
	if err != nil {
		return err
	}

	return annotateNodes(ctx, client, documents)
}

// groupLabel is the label of a node with the name of its instance group.
const groupLabel = "slipway.dev/group"

// annotateNodes sets the desired document on the nodes of the groups. A node that has gone is no error.
func annotateNodes(ctx context.Context, client kubernetes.Interface, documents map[string]string) error {
	selector := groupLabel + " in (" + strings.Join(slices.Sorted(maps.Keys(documents)), ",") + ")"
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}

	var failed atomic.Int64
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxNudges)

	for _, n := range nodes.Items {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"annotations": map[string]string{report.DesiredAnnotation: documents[n.Labels[groupLabel]]},
			}})
			if err == nil {
				_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			}

			if err != nil {
				failed.Add(1)
			}
		})
	}

	wg.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d nodes could not be annotated", n, len(nodes.Items))
	}

	return nil
}
