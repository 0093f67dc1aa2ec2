// SPDX-License-Identifier: Apache-2.0

// Package validate checks the health of a cluster: it reads facts from AWS, from the Kubernetes API and from
// the reports of the agents, has package health judge them, and repeats that until the cluster is healthy
// ([Wait]) or as long as somebody watches ([Watch]).
package validate

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/access"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// validateInterval is the pause between two checks.
const validateInterval = 2 * time.Second

// evaluation reads the state of a cluster and judges it.
type evaluation func(context.Context) (health.Report, error)

// waitUntilHealthy checks the cluster until it is healthy or the request's time is over. It reports each new reason to
// wait. Once the state was read, a failure to read it again is such a reason.
func waitUntilHealthy(ctx context.Context, env *cluster.Env, evaluate evaluation, req Request) (health.Report, error) {
	start := env.Now()
	reported := ""
	read := false // once
	for {
		r, err := evaluate(ctx)
		elapsed := env.Now().Sub(start)
		if r.Valid || elapsed >= req.Wait || err != nil && !read {
			return r, err
		}

		read = true
		if text := describeUnhealthy(r, err); text != reported {
			env.Notifyf("%s waiting: %s", formatElapsed(elapsed), text)
			reported = text
		}

		select {
		case <-ctx.Done():
			return r, fmt.Errorf("validate %s: %w", req.Name, ctx.Err())
		case <-time.After(validateInterval):
		}
	}
}

// evaluate reads the state of the cluster and judges it.
func (g *collector) evaluate(ctx context.Context) (health.Report, error) {
	facts, err := g.collectFacts(ctx)
	if err != nil {
		return health.Report{}, err
	}

	return health.Evaluate(facts), nil
}

// describeUnhealthy names the first failed check and counts the others, or says why nothing was read.
func describeUnhealthy(r health.Report, unread error) string {
	if unread != nil {
		return unread.Error()
	}

	first := ""
	more := -1
	for _, c := range r.Checks {
		if c.OK {
			continue
		}

		more++
		if first == "" {
			first = c.Kind + " " + c.Name + ": " + c.Cause
		}
	}

	if more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}

	return first
}

// formatElapsed formats a duration as minutes and seconds.
func formatElapsed(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// Watch checks the cluster again and again until ctx ends, and passes each report to show. It returns nil when
// ctx ends. AWS may fail to answer after it has answered once: env is notified, and the cluster is checked again.
func Watch(ctx context.Context, env *cluster.Env, req Request, show func(health.Report) error) error {
	g, err := newCollector(ctx, env, req.Name)
	if err != nil {
		return err
	}

	return watch(ctx, env, g.evaluate, show)
}

// watch is Watch with an evaluation.
func watch(ctx context.Context, env *cluster.Env, evaluate evaluation, show func(health.Report) error) error {
	read := false // once
	for ctx.Err() == nil {
		report, err := evaluate(ctx)

		switch {
		case err == nil:
			read = true
			err = show(report)
		case read && ctx.Err() == nil:
			env.Notifyf("not checked: %v", err)
			err = nil
		}

		if err != nil && ctx.Err() == nil {
			return err
		}

		select {
		case <-ctx.Done():
		case <-time.After(validateInterval):
		}
	}

	return nil
}

// Request asks for the health of a cluster.
type Request struct {
	// Name of the cluster.
	Name string
	// Wait is how long to wait until the cluster is healthy. Zero: check once.
	Wait time.Duration
}

// Wait checks the cluster, again until it is healthy if the request allows, and returns the last report. An
// unhealthy cluster is not an error.
func Wait(ctx context.Context, env *cluster.Env, req Request) (health.Report, error) {
	g, err := newCollector(ctx, env, req.Name)
	if err != nil {
		return health.Report{}, err
	}

	return waitUntilHealthy(ctx, env, g.evaluate, req)
}

// ReadFacts reads the state of a cluster once.
func ReadFacts(ctx context.Context, env *cluster.Env, name string) (health.Facts, error) {
	g, err := newCollector(ctx, env, name)
	if err != nil {
		return health.Facts{}, err
	}

	return g.collectFacts(ctx)
}

// newStoreReader returns a function that reads what the machine store has on etcd.
func newStoreReader(env *cluster.Env, set manifest.Set) func(context.Context) (storeFacts, error) {
	var catalog *backup.Catalog // opened by the first call

	return func(ctx context.Context) (storeFacts, error) {
		var out storeFacts
		policy, err := backup.NewPolicy(set.Cluster.Spec.Etcd.Backup)
		if err != nil {
			return out, err
		}

		name := set.Cluster.Metadata.Name
		if catalog == nil {
			region := set.Cluster.Spec.CloudProvider.AWS.Region
			s, sealer, err := env.OpenMachineStore(ctx, set.Cluster, region)
			if err != nil {
				return out, err
			}

			catalog = &backup.Catalog{Archive: backup.Archive{Store: s, Sealer: sealer, Cluster: name}}
		}

		if out.recovery, err = readRecovery(ctx, catalog.Archive.Store, name); err != nil {
			return out, err
		}

		out.backups = &health.Backups{Policy: policy}
		newest, err := catalog.ReadNewest(ctx, env.Now(), policy)
		out.backups.Newest = newest.Taken
		out.backups.Tested = newest.Tested
		out.backups.Future = newest.Future
		out.backups.Unreadable = newest.Unreadable

		return out, err
	}
}

func newCollector(ctx context.Context, env *cluster.Env, name string) (*collector, error) {
	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return nil, err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return nil, err
	}

	owner, _, err := clusterstate.ReadOwnership(ctx, s, name)
	if err != nil {
		return nil, err
	}

	cfg, err := env.AWS(ctx, env.Region)
	if err != nil {
		return nil, err
	}

	clock := &serverClock{}

	return &collector{
		now:         env.Now,
		clock:       clock,
		elb:         elb.NewFromConfig(cfg),
		set:         set,
		ownership:   owner,
		ec2:         ec2.NewFromConfig(cfg),
		autoscaling: autoscaling.NewFromConfig(cfg),
		readStore:   newStoreReader(env, set),
		connect: func(ctx context.Context) (kubernetes.Interface, error) {
			return access.NewKubeClient(ctx, cfg, access.Request{
				Store:   s,
				Sealer:  sealer,
				Cluster: name,
				User:    env.User,
				Now:     env.Now,
				OnResponse: func(resp *http.Response) {
					clock.observe(resp, env.Now())
				},
			})
		},
	}, nil
}
