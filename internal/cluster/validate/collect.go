// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// collector reads the facts that health judges from EC2, from the consoles of machines and from the
// Kubernetes API.
type collector struct {
	now         func() time.Time
	set         manifest.Set
	ec2         *ec2.Client
	autoscaling *autoscaling.Client
	connect     func(ctx context.Context) (kubernetes.Interface, error)
	client      kubernetes.Interface // nil until the API was found
}

// collectFacts reads everything once. An API that does not answer is a fact, not an error.
func (g *collector) collectFacts(ctx context.Context) (health.Facts, error) {
	f := health.Facts{Now: g.now(), Groups: g.wantedGroups()}
	var err error
	if f.Instances, err = g.listInstances(ctx); err != nil {
		return f, err
	}

	if err := g.addScalingFailures(ctx, f.Groups); err != nil {
		return f, err
	}

	if err := g.readKubernetes(ctx, &f); err != nil {
		f.APIError = err.Error()
	}

	return f, g.readConsoles(ctx, &f)
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
				tags := map[string]string{}
				for _, t := range i.Tags {
					tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
				}

				out = append(out, health.Instance{
					ID:       aws.ToString(i.InstanceId),
					Group:    tags[awskind.TagGroup],
					Slot:     tags[awskind.TagSlot],
					State:    string(i.State.Name),
					Bastion:  tags[awskind.TagRole] == "bastion",
					NodeName: aws.ToString(i.PrivateDnsName),
				})
			}
		}
	}

	return out, nil
}

// addScalingFailures adds the newest failed scaling activity of each group that has too few machines.
func (g *collector) addScalingFailures(ctx context.Context, groups []health.Group) error {
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(
		g.autoscaling,
		&autoscaling.DescribeAutoScalingGroupsInput{
			Filters: []autoscalingtypes.Filter{
				{
					Name:   aws.String("tag:" + awskind.TagCluster),
					Values: []string{g.set.Cluster.Metadata.Name},
				},
			},
		},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the cluster's auto scaling groups: %w", err)
		}

		for _, asg := range page.AutoScalingGroups {
			if len(asg.Instances) >= int(aws.ToInt32(asg.DesiredCapacity)) {
				continue
			}

			if err := g.addScalingFailure(ctx, asg, groups); err != nil {
				return err
			}
		}
	}

	return nil
}

// addScalingFailure adds the newest scaling activity of one group if it failed.
func (g *collector) addScalingFailure(
	ctx context.Context,
	asg autoscalingtypes.AutoScalingGroup,
	groups []health.Group,
) error {
	out, err := g.autoscaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
		AutoScalingGroupName: asg.AutoScalingGroupName, MaxRecords: aws.Int32(1),
	})
	if err != nil {
		return fmt.Errorf(
			"read the scaling activities of %s: %w",
			aws.ToString(asg.AutoScalingGroupName),
			err,
		)
	}

	if len(out.Activities) == 0 ||
		out.Activities[0].StatusCode != autoscalingtypes.ScalingActivityStatusCodeFailed {
		return nil
	}

	tags := map[string]string{}
	for _, t := range asg.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	for i := range groups {
		if groups[i].Name == tags[awskind.TagGroup] && groups[i].Slot == tags[awskind.TagSlot] {
			groups[i].ScalingFailure = aws.ToString(out.Activities[0].StatusMessage)
		}
	}

	return nil
}

// readConsoles reads the boot reports of the running machines that have no Ready node.
func (g *collector) readConsoles(ctx context.Context, f *health.Facts) error {
	ready := map[string]bool{}
	for _, n := range f.Nodes {
		ready[n.Instance] = n.Ready
	}

	for i := range f.Instances {
		in := &f.Instances[i]
		if in.State != "running" || ready[in.ID] {
			continue
		}

		out, err := g.ec2.GetConsoleOutput(
			ctx,
			&ec2.GetConsoleOutputInput{InstanceId: &in.ID, Latest: aws.Bool(true)},
		)
		if err != nil {
			return fmt.Errorf("read the console of %s: %w", in.ID, err)
		}

		text, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
		if err != nil {
			return fmt.Errorf("read the console of %s: %w", in.ID, err)
		}

		in.Reports = health.ParseConsole(text)
	}

	return nil
}

// readKubernetes reads nodes, etcd's leases and system pods.
func (g *collector) readKubernetes(ctx context.Context, f *health.Facts) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if g.client == nil {
		client, err := g.connect(ctx)
		if err != nil {
			return err
		}

		g.client = client
	}

	nodes, err := g.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}

	leases, err := g.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}

	pods, err := g.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}

	for _, n := range nodes.Items {
		f.Nodes = append(f.Nodes, nodeFact(n))
	}

	for _, l := range leases.Items {
		if slot, ok := strings.CutPrefix(l.Name, "slipway-etcd-"); ok {
			f.Members = append(f.Members, memberFact(slot, l.Annotations, l.Spec.RenewTime))
		}
	}

	for _, p := range pods.Items {
		if isSystemPod(p) {
			f.Pods = append(f.Pods, podFact(p))
		}
	}

	return nil
}
