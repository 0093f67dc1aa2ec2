// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	groupScaler     = "cluster-autoscaler"
	groupScalerRole = rolePrefix + "kube-system." + groupScaler + ".us-east-1"
	groupScalerFile = "../../examples/addons/" + groupScaler + "-policy.json"
)

// groupScalerPolicy returns the policy of examples/addons for cluster demo.
func groupScalerPolicy(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(groupScalerFile)
	check(t, err)

	return strings.ReplaceAll(string(text), "CLUSTER", "demo")
}

// TestGroupScalerIsLimited: with the role of the channel, groups of workers that ask for it are resized and lose machines; other groups of
// workers and the control plane are not, and no group or machine is changed in another way. Never open: the role's policy and this
// test were made together.
func TestGroupScalerIsLimited(t *testing.T) {
	p := newPodLab(t)
	l := karpenterLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{}))}
	p.startAccount("kube-system", groupScaler, groupScalerPolicy(t), statementsOf(t, groupScalerPolicy(t)))
	c := p.assumeAs(groupScalerRole, "kube-system", groupScaler)
	mine := autoscaling.NewFromConfig(p.config(c))
	groups, err := mine.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
	p.check(err)
	resize := func(group string) error {
		_, err := mine.SetDesiredCapacity(t.Context(), &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &group, DesiredCapacity: sdk.Int32(2)})

		return err
	}
	for _, g := range groups.AutoScalingGroups {
		p.denied("resize "+*g.AutoScalingGroupName+", which does not ask for it", resize(*g.AutoScalingGroupName))
	}

	text := p.must(caller{}, 0, "get", "ig", "workers", "--name", "demo", "-o", "yaml")
	file := p.temporaryFile("workers.yaml", strings.Replace(text, "\nspec:\n", "\nspec:\n  autoscale: true\n", 1))
	p.must(caller{}, 0, "replace", "-f", file, "--name", "demo", "--yes")
	p.must(caller{}, 0, "apply", "demo", "--yes")
	p.check(resize("workers.demo"))
	worker, controlPlane := l.machineOf("worker"), l.machineOf("control-plane")
	end := func(id *string) error {
		_, err := mine.TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
			InstanceId: id, ShouldDecrementDesiredCapacity: sdk.Bool(false),
		})

		return err
	}
	p.denied("end a machine of the control plane", end(controlPlane.InstanceId))
	p.check(end(worker.InstanceId))
	for _, g := range groups.AutoScalingGroups {
		if *g.AutoScalingGroupName != "workers.demo" {
			p.denied("resize "+*g.AutoScalingGroupName, resize(*g.AutoScalingGroupName))
		}
	}
	_, err = mine.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: sdk.String("workers.demo"), MaxSize: sdk.Int32(100)})
	p.denied("raise the maximum of a group", err)
	_, err = ec2.NewFromConfig(p.config(c)).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*controlPlane.InstanceId}})
	p.denied("terminate a machine directly", err)
}

// TestTokenOfGroupScalerIsLimited: the token of the Cluster Autoscaler sets its own taints on workers, and changes neither another taint or
// label of them nor a Node of the control plane. Never open: the account's admission policy and this test were made together.
func TestTokenOfGroupScalerIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newRoleAddonLab(t, "kube-system", groupScaler, groupScalerPolicy(t))
	l.applyChannel("group-autoscaling.yaml")
	mine := l.apiOf("kube-system", groupScaler).CoreV1().Nodes()
	reserved := corev1.Taint{Key: "team", Value: "shop", Effect: corev1.TaintEffectNoSchedule}
	for name, labels := range map[string]map[string]string{"worker": {"team": "shop"}, "control": {"node-role.kubernetes.io/control-plane": ""}} {
		_, err := l.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{reserved}},
		}, metav1.CreateOptions{})
		l.check(err)
	}
	update := func(name string, change func(*corev1.Node)) error {
		node, err := mine.Get(t.Context(), name, metav1.GetOptions{})
		l.check(err)
		change(node)
		_, err = mine.Update(t.Context(), node, metav1.UpdateOptions{})

		return err
	}
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "1", Effect: corev1.TaintEffectNoSchedule})
		}
	}
	label := func(n *corev1.Node) { n.Labels["slipway.dev/group"] = "other" }
	l.await("the policy is in force", func() error {
		if err := update("worker", label); !refused(err) {
			return cmp.Or(err, errors.New("a change of labels is not refused"))
		}

		return nil
	})
	l.check(update("worker", taint("ToBeDeletedByClusterAutoscaler")))
	l.check(update("worker", taint("DeletionCandidateOfClusterAutoscaler")))
	for what, err := range map[string]error{
		"taint a Node of the control plane": update("control", taint("ToBeDeletedByClusterAutoscaler")),
		"set another taint":                 update("worker", taint("team.example.com")),
		"take a taint away":                 update("worker", func(n *corev1.Node) { n.Spec.Taints = nil }),
		"cordon a Node":                     update("worker", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		"annotate a Node":                   update("worker", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }),
	} {
		if !refused(err) {
			t.Errorf("the Cluster Autoscaler can %s: %v", what, err)
		}
	}
	if err := mine.Delete(t.Context(), "worker", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the Cluster Autoscaler can delete a Node: %v", err)
	}
}
