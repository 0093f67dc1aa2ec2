// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// cloud answers with a control-plane machine, a worker that is outdated, and a bastion.
type cloud struct{}

func instance(id, role, group, slot string) ec2types.Instance {
	tag := func(k, v string) ec2types.Tag { return ec2types.Tag{Key: aws.String(k), Value: aws.String(v)} }
	return ec2types.Instance{
		InstanceId: aws.String(id), InstanceType: "t3.large", PrivateDnsName: aws.String("ip-" + id + ".ec2.internal"), PrivateIpAddress: aws.String("10.0.0." + id[2:]),
		State: &ec2types.InstanceState{Name: "running"}, Placement: &ec2types.Placement{AvailabilityZone: aws.String("us-east-1a")},
		Tags: []ec2types.Tag{tag(awskind.TagRole, role), tag(awskind.TagGroup, group), tag(awskind.TagSlot, slot)},
	}
}

// DescribeInstances implements [ec2.DescribeInstancesAPIClient].
func (cloud) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{
		instance("i-3", inventory.RoleBastion, "bastions", ""), instance("i-2", inventory.RoleWorker, "workers", ""), instance("i-1", inventory.RoleControlPlane, "control-plane", "a"),
	}}}}, nil
}

// DescribeLaunchTemplates implements [ec2.DescribeLaunchTemplatesAPIClient].
func (cloud) DescribeLaunchTemplates(context.Context, *ec2.DescribeLaunchTemplatesInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplatesOutput, error) {
	return &ec2.DescribeLaunchTemplatesOutput{LaunchTemplates: []ec2types.LaunchTemplate{
		{LaunchTemplateId: aws.String("lt-2"), LatestVersionNumber: aws.Int64(3)}, {LaunchTemplateId: aws.String("lt-1"), LatestVersionNumber: aws.Int64(1)},
	}}, nil
}

// DescribeAutoScalingGroups implements [autoscaling.DescribeAutoScalingGroupsAPIClient].
func (cloud) DescribeAutoScalingGroups(context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	spec := func(id, v string) *autoscalingtypes.LaunchTemplateSpecification {
		return &autoscalingtypes.LaunchTemplateSpecification{LaunchTemplateId: aws.String(id), Version: aws.String(v)}
	}
	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []autoscalingtypes.AutoScalingGroup{
		{LaunchTemplate: spec("lt-2", "2"), Instances: []autoscalingtypes.Instance{{InstanceId: aws.String("i-2"), LaunchTemplate: spec("lt-2", "2")}}},
		{LaunchTemplate: spec("lt-1", "1"), Instances: []autoscalingtypes.Instance{{InstanceId: aws.String("i-1"), LaunchTemplate: spec("lt-1", "1")}}},
	}}, nil
}

func node(name, machine string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			report.Annotation: `{"time":"2026-11-22T05:00:00Z","conditions":[{"component":"disk","state":"failed","cause":"98% used"}]}`,
		}},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + machine},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "kubelet stopped"}}},
	}
}

func TestRead(t *testing.T) {
	machines, err := inventory.Reader{Cluster: "demo", EC2: cloud{}, AutoScaling: cloud{}}.ReadMachines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := inventory.ReadNodes(t.Context(), fake.NewClientset(node("ip-i-1.ec2.internal", "i-1", corev1.ConditionTrue), node("lost", "i-9", corev1.ConditionUnknown)))
	if err != nil {
		t.Fatal(err)
	}
	machines, nodes = inventory.Join(machines, nodes)
	inventory.Sort(machines, nodes)
	for i, want := range []inventory.Machine{
		{ID: "i-1", NodeState: inventory.NodeReady, Problem: "disk: 98% used", TemplateVersion: "1", Node: "ip-i-1.ec2.internal"},
		{ID: "i-2", NodeState: inventory.NodeMissing, TemplateVersion: "2", Outdated: true, Node: "ip-i-2.ec2.internal"},
		{ID: "i-3"},
	} {
		got := machines[i]
		if got.ID != want.ID || got.NodeState != want.NodeState || got.Problem != want.Problem || got.TemplateVersion != want.TemplateVersion ||
			got.Outdated != want.Outdated || got.Node != want.Node || got.Zone != "us-east-1a" {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if len(nodes) != 2 || nodes[0].Group != "control-plane" || nodes[0].Reason != "" || nodes[1].State != inventory.NodeUnknown || nodes[1].Reason != "kubelet stopped" {
		t.Errorf("nodes %+v", nodes)
	}
	if unread, _ := inventory.Join(machines, nil); unread[1].NodeState != inventory.NodeMissing {
		t.Errorf("joining nothing changed %+v", unread[1])
	}
}

// TestGoneMachinesHaveNoNode: a machine that was terminated is not one that has not joined, and the node that it had
// until its agents' control plane deletes it is not its state.
func TestGoneMachinesHaveNoNode(t *testing.T) {
	machines := []inventory.Machine{
		{ID: "i-1", Role: inventory.RoleWorker, State: "terminated"},
		{ID: "i-2", Role: inventory.RoleWorker, State: "terminated"},
		{ID: "i-3", Role: inventory.RoleWorker, State: "shutting-down"},
		{ID: "i-4", Role: inventory.RoleWorker, State: "pending"},
	}
	joined, _ := inventory.Join(machines, []inventory.Node{{Name: "n2", Machine: "i-2", State: inventory.NodeReady}})
	for i, want := range []string{"", "", "", inventory.NodeMissing} {
		if got := joined[i]; got.NodeState != want || got.Health != "" {
			t.Errorf("%s: node %q, health %q, want node %q", got.ID, got.NodeState, got.Health, want)
		}
	}
}

// TestRevisionOfTheReport: the revision that an agent reports is the machine's.
func TestRevisionOfTheReport(t *testing.T) {
	n := node("n1", "i-1", corev1.ConditionTrue)
	n.Annotations[report.Annotation] = `{"time":"2026-11-22T05:00:00Z","revision":{"state":"pending","serial":3,"followed":"aa11","desired":"aa11","pending":["nodeLabels.tier"]}}`
	nodes, err := inventory.ReadNodes(t.Context(), fake.NewClientset(n))
	if err != nil {
		t.Fatal(err)
	}
	joined, _ := inventory.Join([]inventory.Machine{{ID: "i-1", Role: inventory.RoleWorker, Group: "workers", State: "running"}}, nodes)
	inventory.AddDesired(joined, map[string]string{"workers": "bb22"})
	if r := joined[0].Revision; r.Current != "aa11" || r.Desired != "bb22" || r.State != "pending" || len(r.Pending) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestFindMachine(t *testing.T) {
	machines := []inventory.Machine{
		{ID: "i-1", Group: "control-plane", Slot: "a", State: "running", Node: "ip-1.ec2.internal", PrivateAddress: "10.0.0.1", PublicAddress: "192.0.2.1"},
		{ID: "i-2", Group: "workers", State: "running", Node: "ip-2.ec2.internal"},
		{ID: "i-3", Group: "workers", State: "running"},
		{ID: "i-4", Group: "gpu", State: "terminated", Node: "ip-4"},
		{ID: "i-5", Group: "gpu", State: "running"},
	}
	for name, want := range map[string]string{
		"i-1": "i-1", "control-plane-a": "i-1", "control-plane": "i-1", "ip-1.ec2.internal": "i-1", "ip-1": "i-1", "10.0.0.1": "i-1", "192.0.2.1": "i-1",
		"gpu": "i-5", "i-4": "i-4",
	} {
		if got, err := inventory.FindMachine(machines, name); err != nil || got.ID != want {
			t.Errorf("%s: got %q, %v", name, got.ID, err)
		}
	}
	for name, want := range map[string]string{
		"workers": `"workers" is the name of 2 machines`, "ip-4": `has no machine "ip-4"`, "": `has no machine ""`, "i-9": `has no machine "i-9"`, "control-plane-b": "has no machine",
	} {
		if _, err := inventory.FindMachine(machines, name); err == nil || !strings.Contains(err.Error(), want) || len(diag.Hints(err)) == 0 {
			t.Errorf("%q: got %v", name, err)
		}
	}
}
