// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// realController is a kube-apiserver with the nodes of a cluster, and the real controller next to it.
type realController struct {
	controllerLab
	realAPI
	stop func()
}

// The channels of the controller.
const (
	loadBalancersChannel = "../../examples/addons/load-balancers.yaml"
	cloudProviderChannel = "../../examples/addons/cloud-provider.yaml"
)

// newRealController applies a channel. The controller does not run yet. Nodes are registered as change leaves them.
func newRealController(t *testing.T, channel string, change func(*corev1.Node, clusterMachine)) realController {
	t.Helper()
	l := newControllerLab(t)
	r := realController{controllerLab: l, realAPI: startRealAPI(t, signWith(t, l.key, podIssuer))}
	r.registerNodes(change)
	// No controller sets the status of the DaemonSet here, so the command does not see it become healthy.
	_, errs, _ := l.slipway(caller{}, "addons", "apply", "demo", "-f", channel, "--kubeconfig", r.server.Kubeconfig, "--timeout", "1s", "--yes")
	if _, err := r.api.AppsV1().DaemonSets("kube-system").Get(t.Context(), controllerName, metav1.GetOptions{}); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if out, errs, code := l.slipway(caller{}, "addons", "diff", "demo", "-f", channel, "--kubeconfig", r.server.Kubeconfig); out != "" {
		t.Errorf("diff has exit code %d and differences after an apply:\n%s%s", code, out, errs)
	}

	return r
}

// startController applies a channel and starts the controller with the arguments, the settings, the rights in
// Kubernetes and the role in AWS that it has in a cluster. Nodes are registered as change leaves them.
func startController(t *testing.T, channel string, change func(*corev1.Node, clusterMachine)) realController {
	t.Helper()
	program := assettest.Program(t, controllerName, "bin/"+controllerName)
	r := newRealController(t, channel, change)
	l := r.controllerLab
	set, err := r.api.AppsV1().DaemonSets("kube-system").Get(t.Context(), controllerName, metav1.GetOptions{})
	l.check(err)
	config, err := r.api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), controllerName, metav1.GetOptions{})
	l.check(err)
	container := set.Spec.Template.Spec.Containers[0]
	arguments := slices.Clone(container.Args)
	for i, a := range arguments {
		if strings.HasPrefix(a, "--cloud-config=") {
			arguments[i] = "--cloud-config=" + l.temporaryFile("cloud.conf", config.Data["cloud.conf"])
		}
	}
	arguments = append(arguments, "--kubeconfig="+r.kubeconfigOf("kube-system", controllerName), "--secure-port=0", "--leader-elect-retry-period=500ms")
	r.stop = realProgram{
		name:        controllerName,
		path:        program,
		arguments:   arguments,
		environment: r.containerEnvironment(l.lab, container, controllerName),
	}.start(t)

	return r
}

// registerNodes creates the nodes of the machines, as kubelets do.
func (r *realController) registerNodes(change func(*corev1.Node, clusterMachine)) {
	r.Helper()
	for _, m := range r.machines() {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: corev1.NodeSpec{ProviderID: "aws:///" + m.zone + "/" + m.id}}
		if m.role == "control-plane" {
			n.Labels = map[string]string{excludedLabel: ""}
		}
		change(n, m)
		made, err := r.api.CoreV1().Nodes().Create(r.Context(), n, metav1.CreateOptions{})
		r.check(err)
		made.Status = n.Status
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = r.api.CoreV1().Nodes().UpdateStatus(r.Context(), made, metav1.UpdateOptions{})
		r.check(err)
	}
}

// createService creates a Service of type LoadBalancer and returns it when it has an address.
func (r *realController) createService(name string, change func(*corev1.Service)) *corev1.Service {
	r.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	change(s)
	_, err := r.api.CoreV1().Services("default").Create(r.Context(), s, metav1.CreateOptions{})
	r.check(err)
	var got *corev1.Service
	r.await("Service "+name+" gets an address", func() string {
		got, err = r.api.CoreV1().Services("default").Get(r.Context(), name, metav1.GetOptions{})
		r.check(err)
		if len(got.Status.LoadBalancer.Ingress) == 0 {
			return "it has none" + r.lastEvent(name)
		}

		return ""
	})

	return got
}

// lastEvent returns the last warning about a Service.
func (r *realController) lastEvent(name string) string {
	list, err := r.api.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{})
	r.check(err)
	text := ""
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Type == corev1.EventTypeWarning {
			text = ": " + e.Message
		}
	}

	return text
}

// await waits until f returns nothing.
func (r *realController) await(what string, f func() string) {
	r.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for problem := f(); problem != ""; problem = f() {
		if time.Now().After(deadline) {
			r.Fatalf("%s: not within 90 s: %s", what, problem)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestRealCloudController: the unmodified controller, with the channel of examples/addons, makes the load balancer of a
// Service, opens the ports of workers, and removes both with the Service. What it does is no drift, and what it leaves is
// deleted with the cluster. No attack: the real program, with its limits.
func TestRealCloudController(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := startController(t, loadBalancersChannel, func(*corev1.Node, clusterMachine) {})
	balancers, groups := len(r.balancers()), len(r.groups())
	worker := r.securityGroup("worker")
	s := r.createService("web", func(*corev1.Service) {})
	host := s.Status.LoadBalancer.Ingress[0].Hostname
	name := "a" + strings.ReplaceAll(string(s.UID), "-", "")[:31]
	made, ok := r.balancers()[name]
	if !ok || *made.DNSName != host || !strings.HasPrefix(host, "127.") || strings.Count(host, ".") != 1 {
		t.Errorf("the Service has the address %s, the load balancer is %+v", host, made)
	}

	r.await("the workers are targets", func() string { return r.checkTargets(s) })
	port := s.Spec.Ports[0].NodePort
	r.await("the ports of workers are open", func() string {
		return cmp.Diff([]string{fmt.Sprintf("client tcp %d from 0.0.0.0/0", port)}, r.serviceRules(worker))
	})
	for _, other := range []string{"control-plane", "api-internal", "api-public"} {
		if rules := r.serviceRules(r.securityGroup(other)); len(rules) > 0 {
			t.Errorf("the controller has opened %s: %q", other, rules)
		}
	}
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}

	r.check(r.api.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	r.await("the load balancer is removed with the Service", func() string {
		if b, g, rules := len(r.balancers()), len(r.groups()), r.serviceRules(worker); b != balancers || g != groups || len(rules) > 0 {
			return fmt.Sprintf("%d load balancers and %d target groups, %d and %d before; rules %q", b, g, balancers, groups, rules)
		}

		return ""
	})

	r.createService("left", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	})
	r.await("its rules are there", func() string {
		if rules := r.serviceRules(worker); !slices.ContainsFunc(rules, func(s string) bool { return strings.HasPrefix(s, "mtu icmp 3 from 192.0.2.0/24") }) {
			return fmt.Sprintf("%q", rules)
		}

		return ""
	})
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}
	r.stop()
	out := r.must(caller{}, 0, "delete", "cluster", "demo", "--yes")
	for _, want := range []string{"leftover of service default/left", "load-balancer/leftover:a", "target-group/leftover:k8s-default-left-"} {
		if !strings.Contains(out, want) {
			t.Errorf("delete does not print %s:\n%s", want, out)
		}
	}
	if b, g := r.balancers(), r.groups(); len(b)+len(g) > 0 {
		t.Errorf("left: %v %v", b, g)
	}
}

// checkTargets returns what is wrong with the targets of a Service's port: they must be the workers, and no other machine.
func (r *realController) checkTargets(s *corev1.Service) string {
	r.Helper()
	var want, got []string
	for _, m := range r.machines() {
		if m.role == "worker" {
			want = append(want, fmt.Sprintf("%s:%d", m.id, s.Spec.Ports[0].NodePort))
		}
	}
	for name, g := range r.groups() {
		if !strings.HasPrefix(name, "k8s-default-"+s.Name+"-") {
			continue
		}
		out, err := r.elb.DescribeTargetHealth(r.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: g.TargetGroupArn})
		r.check(err)
		for _, d := range out.TargetHealthDescriptions {
			got = append(got, fmt.Sprintf("%s:%d", *d.Target.Id, *d.Target.Port))
		}
	}
	slices.Sort(want)
	slices.Sort(got)

	return cmp.Diff(want, got)
}
