// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Reader reads the machines of one cluster from AWS.
type Reader struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Ownership tells the cluster's machines from those of another cluster of this name.
	Ownership clusterstate.Ownership
	// EC2 lists the machines, and the newest versions of launch templates.
	EC2 InstanceAPI
	// AutoScaling lists the groups, which know the launch template of each machine.
	AutoScaling autoscaling.DescribeAutoScalingGroupsAPIClient
}

// InstanceAPI are the calls to EC2.
type InstanceAPI interface {
	ec2.DescribeInstancesAPIClient
	ec2.DescribeLaunchTemplatesAPIClient
}

// NewReader returns a reader that calls AWS. cfg is for the cluster's region.
func NewReader(name string, own clusterstate.Ownership, cfg aws.Config) Reader {
	return Reader{
		Cluster:     name,
		Ownership:   own,
		EC2:         ec2.NewFromConfig(cfg),
		AutoScaling: autoscaling.NewFromConfig(cfg),
	}
}

// ReadMachines returns the machines of the cluster, sorted, without what Kubernetes knows of them.
// Machines that were terminated less than an hour ago are included.
func (r Reader) ReadMachines(ctx context.Context) ([]Machine, error) {
	var out []Machine
	pages := ec2.NewDescribeInstancesPaginator(r.EC2, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{r.Cluster}},
		},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the machines of cluster %s: %w", r.Cluster, err)
		}

		for _, reservation := range page.Reservations {
			for _, i := range reservation.Instances {
				if tags := driver.FromEC2Tags(i.Tags); r.Ownership.OwnsTags(tags) {
					out = append(out, newMachine(i, tags))
				}
			}
		}
	}

	if len(out) > 0 {
		if err := r.addTemplates(ctx, out); err != nil {
			return nil, err
		}
	}

	Sort(out, nil)

	return out, nil
}

func newMachine(i ec2types.Instance, tags map[string]string) Machine {
	m := Machine{
		ID:             aws.ToString(i.InstanceId),
		Group:          tags[awskind.TagGroup],
		Slot:           tags[awskind.TagSlot],
		Role:           tags[awskind.TagRole],
		MachineType:    string(i.InstanceType),
		PrivateAddress: aws.ToString(i.PrivateIpAddress),
		PublicAddress:  aws.ToString(i.PublicIpAddress),
		Image:          aws.ToString(i.ImageId),
		Spot:           i.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot,
		LaunchedAt:     aws.ToTime(i.LaunchTime),
	}
	if i.State != nil {
		m.State = string(i.State.Name)
	}

	if i.Placement != nil {
		m.Zone = aws.ToString(i.Placement.AvailabilityZone)
	}

	if m.Role != RoleBastion {
		m.Node = aws.ToString(i.PrivateDnsName)
	}

	return m
}

// addTemplates adds the versions of the launch templates, which the groups know.
func (r Reader) addTemplates(ctx context.Context, machines []Machine) error {
	newest, err := r.newestVersions(ctx)
	if err != nil {
		return err
	}

	versions := map[string]templateVersions{}
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(
		r.AutoScaling,
		&autoscaling.DescribeAutoScalingGroupsInput{
			Filters: []autoscalingtypes.Filter{
				{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{r.Cluster}},
			},
		},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the auto scaling groups of cluster %s: %w", r.Cluster, err)
		}

		for _, group := range page.AutoScalingGroups {
			wanted := wantedVersion(group, newest)
			for _, i := range group.Instances {
				v := templateVersions{wanted: wanted}
				if i.LaunchTemplate != nil {
					v.launched = aws.ToString(i.LaunchTemplate.Version)
				}

				versions[aws.ToString(i.InstanceId)] = v
			}
		}
	}

	for i := range machines {
		v := versions[machines[i].ID]
		machines[i].TemplateVersion = v.launched
		machines[i].Outdated = v.launched != "" && v.wanted != "" && v.launched != v.wanted
	}

	return nil
}

// newestVersions returns the newest version of each launch template of the cluster, by id.
func (r Reader) newestVersions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	pages := ec2.NewDescribeLaunchTemplatesPaginator(r.EC2, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{r.Cluster}}},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the launch templates of cluster %s: %w", r.Cluster, err)
		}

		for _, t := range page.LaunchTemplates {
			out[aws.ToString(t.LaunchTemplateId)] = strconv.FormatInt(aws.ToInt64(t.LatestVersionNumber), 10)
		}
	}

	return out, nil
}

// templateVersions are the versions of a launch template: the one that a machine was launched from, and the newest one,
// which a rolling update gives it.
type templateVersions struct{ launched, wanted string }

// wantedVersion returns the newest version of a group's launch template, by the versions by id, or else the one that the
// group launches machines from; empty if that is not a number.
func wantedVersion(group autoscalingtypes.AutoScalingGroup, newest map[string]string) string {
	spec := group.LaunchTemplate
	if p := group.MixedInstancesPolicy; spec == nil && p != nil && p.LaunchTemplate != nil {
		spec = p.LaunchTemplate.LaunchTemplateSpecification
	}

	if spec == nil || strings.HasPrefix(aws.ToString(spec.Version), "$") {
		return ""
	}

	return cmp.Or(newest[aws.ToString(spec.LaunchTemplateId)], aws.ToString(spec.Version))
}

// ReadNodes returns the nodes of a cluster. The list is not nil, also if it is empty.
func ReadNodes(ctx context.Context, client kubernetes.Interface) ([]Node, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	out := make([]Node, 0, len(list.Items))
	for _, n := range list.Items {
		out = append(out, newNode(n))
	}

	Sort(nil, out)

	return out, nil
}

const (
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	zoneLabel         = "topology.kubernetes.io/zone"
)

func newNode(n corev1.Node) Node {
	out := Node{
		Name:      n.Name,
		State:     NodeNotReady,
		Reason:    "the kubelet has not reported yet",
		Cordoned:  n.Spec.Unschedulable,
		Role:      RoleWorker,
		Machine:   n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:],
		Zone:      n.Labels[zoneLabel],
		Version:   n.Status.NodeInfo.KubeletVersion,
		OSImage:   n.Status.NodeInfo.OSImage,
		Kernel:    n.Status.NodeInfo.KernelVersion,
		Runtime:   n.Status.NodeInfo.ContainerRuntimeVersion,
		CreatedAt: n.CreationTimestamp.Time,
	}
	if _, ok := n.Labels[controlPlaneLabel]; ok {
		out.Role = RoleControlPlane
	}

	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Address = a.Address
		}
	}

	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.State = nodeState(c.Status)
			out.Reason = c.Message
		}
	}

	if out.State == NodeReady {
		out.Reason = ""
	}

	addReport(&out, n.Annotations[report.Annotation])

	return out
}

func nodeState(ready corev1.ConditionStatus) string {
	switch ready {
	case corev1.ConditionTrue:
		return NodeReady
	case corev1.ConditionFalse:
		return NodeNotReady
	default:
		return NodeUnknown
	}
}

// addReport adds what the agent reported last. A report that cannot be read is left out.
func addReport(n *Node, annotation string) {
	var r report.Report
	if annotation == "" || json.Unmarshal([]byte(annotation), &r) != nil {
		return
	}

	n.ReportedAt = r.Time
	n.Revision = Revision{
		Current: r.Revision.Followed,
		Desired: r.Revision.Desired,
		State:   string(r.Revision.State),
		Pending: r.Revision.Pending,
		Cause:   r.Revision.Cause,
	}
	n.Warned = slices.ContainsFunc(r.Conditions, func(c report.Condition) bool { return c.State == report.Warning })
	for _, c := range r.Conditions {
		if c.State == report.Failed {
			n.Problem = string(c.Component) + ": " + c.Cause
			return
		}
	}
}
