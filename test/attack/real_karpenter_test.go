// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/agent"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/region/fault"
)

// realKarpenter is a kube-apiserver with the real Karpenter next to it.
type realKarpenter struct {
	karpenterLab
	realAPI
	objects dynamic.Interface
}

// startKarpenter applies the channel and starts Karpenter with the arguments, the settings, the rights in Kubernetes and the
// role in AWS that it has in a cluster.
func startKarpenter(t *testing.T) realKarpenter {
	t.Helper()
	program := assettest.Program(t, karpenterName, "bin/"+karpenterName)
	k := newKarpenterLab(t)
	r := realKarpenter{karpenterLab: k, realAPI: startRealAPI(t, signWith(t, k.key, podIssuer))}
	var err error
	r.objects, err = dynamic.NewForConfig(r.config)
	r.check(err)
	// No controller sets the status of the Deployment here, so the command does not see it become healthy.
	_, errs, _ := r.slipway(caller{}, "addons", "apply", "demo", "-f", "../../examples/addons/node-autoscaling.yaml", "--kubeconfig", r.server.Kubeconfig, "--timeout", "5s", "--yes")
	made, err := r.api.AppsV1().Deployments("kube-system").Get(t.Context(), karpenterName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	container := made.Spec.Template.Spec.Containers[0]
	ports := apitest.FreePorts(t, 2)
	arguments := append(slices.Clone(container.Args), "--metrics-port="+ports[0], "--health-probe-port="+ports[1], "--disable-leader-election=true", "--log-level=debug")
	environment := append(r.containerEnvironment(r.lab, container, karpenterName), "KUBECONFIG="+r.kubeconfigOf("kube-system", karpenterName))
	realProgram{
		name:        karpenterName,
		path:        program,
		arguments:   arguments,
		environment: environment,
		refusals:    []string{"forbidden", "UnauthorizedOperation"},
	}.start(t)

	return r
}

// createObjects creates the objects that the control plane writes from the signed list of launches in the machine store.
func (r *realKarpenter) createObjects() {
	r.Helper()
	cfg := r.lab.config(caller{})
	s, _, err := store.Open(r.Context(), stateURL, store.Options{AWS: func(context.Context) (sdk.Config, error) { return cfg, nil }})
	r.check(err)
	public, err := pki.LoadPublicBundle(r.Context(), s, "demo")
	r.check(err)
	stored, err := s.Get(r.Context(), node.LaunchesKey("demo"))
	r.check(err)
	launches, err := node.VerifyLaunches(stored.Body, public.CAs[pki.KubernetesCA], "demo")
	r.check(err)
	class, pool, err := agent.BuildKarpenterObjects(karpenterGroup, launches.Pools[karpenterGroup], node.APIEndpoints{Internal: "internal.example", Public: "public.example"})
	r.check(err)
	r.create("karpenter.k8s.aws", "ec2nodeclasses", class)
	r.create("karpenter.sh", "nodepools", pool)
}

// create creates an object of Karpenter.
func (r *realKarpenter) create(group, plural string, object map[string]any) {
	r.Helper()
	text, err := json.Marshal(object)
	r.check(err)
	made := &unstructured.Unstructured{}
	r.check(made.UnmarshalJSON(text))
	_, err = r.objects.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).Create(r.Context(), made, metav1.CreateOptions{})
	r.check(err)
}

// createPod creates a pod that fits on no node, as the scheduler says.
func (r *realKarpenter) createPod(name string) {
	r.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}}},
	}
	made, err := r.api.CoreV1().Pods("default").Create(r.Context(), p, metav1.CreateOptions{})
	r.check(err)
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	_, err = r.api.CoreV1().Pods("default").UpdateStatus(r.Context(), made, metav1.UpdateOptions{})
	r.check(err)
}

// machines returns the machines of the node pool that live.
func (r *realKarpenter) machines() []ec2types.Instance {
	r.Helper()
	out, err := r.ec2.DescribeInstances(r.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:karpenter.sh/nodepool"), Values: []string{karpenterGroup}},
		{Name: sdk.String("instance-state-name"), Values: []string{"pending", "running"}},
	}})
	r.check(err)
	var all []ec2types.Instance
	for _, v := range out.Reservations {
		all = append(all, v.Instances...)
	}

	return all
}

// await waits until f returns nothing.
func (r *realKarpenter) await(what string, f func() string) {
	r.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for problem := f(); problem != ""; problem = f() {
		if time.Now().After(deadline) {
			r.Fatalf("%s: not within 3 minutes: %s", what, problem)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// awaitMachine waits until there is one machine, and returns it.
func (r *realKarpenter) awaitMachine(what string) ec2types.Instance {
	r.Helper()
	var found []ec2types.Instance
	r.await(what, func() string {
		if found = r.machines(); len(found) != 1 {
			return fmt.Sprintf("there are %d", len(found))
		}

		return ""
	})

	return found[0]
}

// register creates the Node of a machine as its kubelet does, and waits until Karpenter knows it.
func (r *realKarpenter) register(m ec2types.Instance) {
	r.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: *m.PrivateDnsName, Labels: map[string]string{
			"slipway.dev/group": karpenterGroup, "kubernetes.io/hostname": *m.PrivateDnsName, "node.kubernetes.io/instance-type": string(m.InstanceType),
		}},
		Spec: corev1.NodeSpec{
			ProviderID: "aws:///" + *m.Placement.AvailabilityZone + "/" + *m.InstanceId,
			Taints:     []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
		},
	}
	made, err := r.api.CoreV1().Nodes().Create(r.Context(), n, metav1.CreateOptions{})
	r.check(err)
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	made.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("7Gi"), "pods": resource.MustParse("20"), "ephemeral-storage": resource.MustParse("20Gi")}
	made.Status.Allocatable = made.Status.Capacity
	_, err = r.api.CoreV1().Nodes().UpdateStatus(r.Context(), made, metav1.UpdateOptions{})
	r.check(err)
	r.await("the Node is registered", func() string {
		got, err := r.api.CoreV1().Nodes().Get(r.Context(), made.Name, metav1.GetOptions{})
		r.check(err)
		// No controller of nodes takes away the taint that a new Node gets.
		at := slices.IndexFunc(got.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
		if at >= 0 {
			got.Spec.Taints = slices.Delete(got.Spec.Taints, at, at+1)
			if _, err := r.api.CoreV1().Nodes().Update(r.Context(), got, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
				r.Fatal(err)
			}
		}
		if got.Labels["karpenter.sh/initialized"] != "true" {
			return fmt.Sprintf("it has the labels %v and the taints %v", got.Labels, got.Spec.Taints)
		}

		return ""
	})
}

// TestRealKarpenter: the unmodified program, with the channel of examples/addons and the product's own objects, role and boundary, launches a machine for a pod that fits nowhere,
// on spot if there is capacity and else on-demand, and ends the machine when it is empty. What it does is no drift, and it has
// the rights that it needs and no others. No attack: the real program, with its limits.
func TestRealKarpenter(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := startKarpenter(t)
	r.createObjects()

	r.createPod("one")
	m := r.awaitMachine("a machine for the pod")
	if m.InstanceLifecycle != ec2types.InstanceLifecycleTypeSpot || m.InstanceType != "m5.large" {
		t.Errorf("the machine is %s with lifecycle %q, want m5.large on spot", m.InstanceType, m.InstanceLifecycle)
	}
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}
	r.register(m)
	r.check(r.api.CoreV1().Pods("default").Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	r.await("the empty machine is ended", func() string {
		nodes, err := r.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		r.check(err)
		if n := len(r.machines()); n+len(nodes.Items) > 0 {
			return fmt.Sprintf("there are %d machines and %d Nodes", n, len(nodes.Items))
		}

		return ""
	})

	_, err := r.region.Faults.AddRule(fault.Rule{Effect: fault.EffectNoCapacity, Kind: "spot"})
	r.check(err)
	r.createPod("two")
	if m := r.awaitMachine("a machine without capacity on spot"); m.InstanceLifecycle != "" {
		t.Errorf("the machine has the lifecycle %q, want on-demand", m.InstanceLifecycle)
	}
}
