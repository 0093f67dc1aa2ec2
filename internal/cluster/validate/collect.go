// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/machine/report"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Limits of one collection.
const (
	// apiTimeout is how long the API may take to answer all reads. They are tried twice.
	apiTimeout = 3 * time.Second
	// backupsTimeout is how long the machine store may take to list the backups, which are read again after backupsTTL.
	backupsTimeout = 5 * time.Second
	backupsTTL     = 15 * time.Second
	// maxConsoles is how many consoles are read, those of the control plane first.
	maxConsoles = 20
	// parallelConsoles is how many are read at the same time.
	parallelConsoles = 5
)

// collector reads the facts that health judges: from EC2, Auto Scaling and the load balancers, from the
// Kubernetes API, and from the consoles of machines that the API says too little of.
type collector struct {
	now         func() time.Time
	set         manifest.Set
	ownership   clusterstate.Ownership
	ec2         *ec2.Client
	autoscaling *autoscaling.Client
	elb         *elb.Client
	// connect returns a client of the API that reports the API server's clock to clock.
	connect func(ctx context.Context) (kubernetes.Interface, error)
	client  kubernetes.Interface // nil until the API was found
	clock   *serverClock

	// readStore reads what the machine store has on etcd; nil if it cannot be opened.
	readStore func(ctx context.Context) (storeFacts, error)
	// stored was read at storedAt.
	stored   storeFacts
	storedAt time.Time

	mu     sync.Mutex
	unread []health.Unread
}

// collectFacts reads everything once. What cannot be read, such as an API that does not answer, is a fact;
// only a failure to list the machines is an error.
func (g *collector) collectFacts(ctx context.Context) (health.Facts, error) {
	f := health.Facts{Groups: g.wantedGroups(), Reports: map[string]health.MachineReport{}}
	g.unread = nil
	var api apiFacts
	var apiErr error
	var reads errgroup.Group
	reads.Go(func() (err error) { f.Instances, err = g.listInstances(ctx); return err })
	reads.Go(func() error { f.Targets = g.readGroups(ctx, f.Groups); return nil })
	reads.Go(func() error { api, apiErr = g.readKubernetes(ctx); return nil })
	var stored storeFacts
	reads.Go(func() error { stored = g.recentStoreFacts(ctx); return nil })
	if err := reads.Wait(); err != nil {
		return f, err
	}

	f.Backups = stored.backups
	f.Recovery = stored.recovery
	f.Now = g.clock.correct(g.now())
	if apiErr != nil {
		f.APIError = describeAPIError(apiErr)
	} else {
		api.addTo(&f)
	}

	g.readConsoles(ctx, &f)
	f.Unread = g.unread

	return f, nil
}

// storeFacts is what the machine store has on etcd.
type storeFacts struct {
	backups  *health.Backups
	recovery *health.Recovery
}

// recentStoreFacts returns what the machine store has on etcd, read in the last 15 s; zero if it cannot be read.
func (g *collector) recentStoreFacts(ctx context.Context) storeFacts {
	if g.readStore == nil || g.stored.backups != nil && g.now().Sub(g.storedAt) < backupsTTL {
		return g.stored
	}

	ctx, cancel := context.WithTimeout(ctx, backupsTimeout)
	defer cancel()
	found, err := g.readStore(ctx)
	if err != nil {
		g.addUnread("the backups of etcd", err)
		return storeFacts{}
	}

	g.stored = found
	g.storedAt = g.now()

	return found
}

// addUnread records that something could not be read. It is safe for concurrent use.
func (g *collector) addUnread(what string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unread = append(g.unread, health.Unread{What: what, Error: shortAWSError(err)})
}

// shortAWSError returns the code and message of an AWS error without the SDK's words around it.
func shortAWSError(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode() + ": " + api.ErrorMessage()
	}

	return err.Error()
}

// wantedGroups returns what the manifests want: each slot of the control plane and each group of workers.
func (g *collector) wantedGroups() []health.Group {
	var out []health.Group
	for _, ig := range g.set.Groups {
		if ig.Spec.Role != v1alpha1.RoleControlPlane {
			out = append(out, health.Group{Name: ig.Metadata.Name, Size: ig.Spec.MinMachines()})
			continue
		}

		for i := range ig.Spec.MinMachines() {
			out = append(out, health.Group{Name: ig.Metadata.Name, Slot: string(rune('a' + i)), Size: 1})
		}
	}

	return out
}

// listInstances returns the machines with the cluster's tag.
func (g *collector) listInstances(ctx context.Context) ([]health.Instance, error) {
	var out []health.Instance
	pages := ec2.NewDescribeInstancesPaginator(g.ec2, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{g.set.Cluster.Metadata.Name}},
		},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the cluster's machines: %w", err)
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if g.ownership.OwnsTags(driver.FromEC2Tags(i.Tags)) {
					out = append(out, instanceFact(i))
				}
			}
		}
	}

	return out, nil
}

func instanceFact(i ec2types.Instance) health.Instance {
	tags := map[string]string{}
	for _, t := range i.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return health.Instance{
		ID:       aws.ToString(i.InstanceId),
		Group:    tags[awskind.TagGroup],
		Slot:     tags[awskind.TagSlot],
		State:    string(i.State.Name),
		Why:      aws.ToString(i.StateTransitionReason),
		Bastion:  tags[awskind.TagRole] == "bastion",
		NodeName: aws.ToString(i.PrivateDnsName),
	}
}

// readConsoles reads the consoles of the machines that the API says too little of. A console that cannot be
// read is not an error.
func (g *collector) readConsoles(ctx context.Context, f *health.Facts) {
	var reads errgroup.Group
	reads.SetLimit(parallelConsoles)
	var mu sync.Mutex // of f.Reports
	for _, at := range consolesToRead(*f) {
		i := &f.Instances[at]
		reads.Go(func() error {
			text, err := g.readConsole(ctx, i.ID)
			if err != nil {
				g.addUnread("the console of "+i.ID, err)
				return nil
			}

			i.Reports = health.ParseConsole(text)
			mu.Lock()
			defer mu.Unlock()
			addConsoleReport(f.Reports, *i, text)

			return nil
		})
	}

	_ = reads.Wait() // no read returns an error
}

// consolesToRead returns the indexes of the running machines whose console may say more than the API: those without a
// Ready node, and those that are silent. Without the API these are all machines.
func consolesToRead(f health.Facts) []int {
	var out []int
	working := map[string]bool{}
	for _, n := range f.Nodes {
		working[n.Instance] = n.Ready && (n.LeaseRenewed.IsZero() || f.Now.Sub(n.LeaseRenewed) <= health.LeaseTTL)
	}

	for at, i := range f.Instances {
		silent := f.APIError != "" || !working[i.ID] || f.IsSilent(i.ID)
		if i.State == "running" && !i.Bastion && silent {
			out = append(out, at)
		}
	}

	slices.SortStableFunc(out, func(a, b int) int { // those of the control plane first
		return min(1, len(f.Instances[b].Slot)) - min(1, len(f.Instances[a].Slot))
	})

	return out[:min(len(out), maxConsoles)]
}

// readConsole returns the newest console output of a machine.
func (g *collector) readConsole(ctx context.Context, id string) ([]byte, error) {
	out, err := g.ec2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id, Latest: aws.Bool(true)})
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "UnsupportedOperation" {
		// Only instances on Nitro have the latest output; others have what EC2 stored last.
		out, err = g.ec2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &id})
	}

	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}

	text, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
	if err != nil {
		return nil, fmt.Errorf("decode the console: %w", err)
	}

	return text, nil
}

// addConsoleReport uses the agent's report on a machine's console if it is newer than that of the API, and
// than the last stage of a boot: a report before a restart of the agent says nothing of now.
func addConsoleReport(reports map[string]health.MachineReport, i health.Instance, text []byte) {
	r, found := report.ParseConsole(text)
	if !found || r.Machine != i.ID || !r.Time.After(reports[i.ID].PublishedAt) {
		return
	}

	if n := len(i.Reports); n > 0 && i.Reports[n-1].Time.After(r.Time) {
		return
	}

	reports[i.ID] = health.MachineReport{Report: r, PublishedAt: r.Time, FromConsole: true}
}
