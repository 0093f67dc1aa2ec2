// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// createServices creates a Service of type LoadBalancer and one of another type, as the DNS of a cluster is.
func (r *realController) createServices() {
	r.Helper()
	for name, kind := range map[string]corev1.ServiceType{"web": corev1.ServiceTypeLoadBalancer, "dns": corev1.ServiceTypeClusterIP} {
		_, err := r.api.CoreV1().Services("default").Create(r.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}, Finalizers: []string{"example.com/other"}},
			Spec:       corev1.ServiceSpec{Type: kind, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		r.check(err)
	}
}

// TestControllerOfLoadBalancersWritesOnlyHostNames: the token of the cloud controller manager writes the host names of load balancers
// into Services of type LoadBalancer, and its finalizer. It sends the traffic of no Service and of no address elsewhere. Without the
// policy, and with the right to update Services, this was seen to succeed.
func TestControllerOfLoadBalancersWritesOnlyHostNames(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := newRealController(t, loadBalancersChannel, func(*corev1.Node, clusterMachine) {})
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfigOf("kube-system", controllerName))
	r.check(err)
	api, err := kubernetes.NewForConfig(config)
	r.check(err)
	r.createServices()
	patch := func(name, text string, subresources ...string) error {
		_, err := api.CoreV1().Services("default").Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		return err
	}
	const address = `{"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}}`
	r.await("the policy is in force", func() string {
		if err := patch("web", address, "status"); !refused(err) {
			return fmt.Sprintf("an address is not refused: %v", err)
		}

		return ""
	})

	// What the controller does: its finalizer and the host name; and both away.
	const mark = "service.kubernetes.io/load-balancer-cleanup"
	r.check(patch("web", `{"metadata": {"finalizers": ["example.com/other", "`+mark+`"]}}`, "status"))
	r.check(patch("web", `{"status": {"loadBalancer": {"ingress": [{"hostname": "web.example.com"}]}}}`, "status"))
	for what, attempt := range map[string]func() error{
		"send the traffic of a Service to other pods": func() error { return patch("dns", `{"spec": {"selector": {"app": "attacker"}}}`) },
		"send the traffic of an address to a Service": func() error { return patch("web", address, "status") },
		"give an address to another Service":          func() error { return patch("dns", address, "status") },
		"give a host name to another Service": func() error {
			return patch("dns", `{"status": {"loadBalancer": {"ingress": [{"hostname": "web.example.com"}]}}}`, "status")
		},
		"hide an address behind a host name": func() error {
			return patch("web", `{"status": {"loadBalancer": {"ingress": [{"hostname": "web.example.com", "ip": "198.51.100.7"}]}}}`, "status")
		},
		"change a label": func() error { return patch("dns", `{"metadata": {"labels": {"team": "b"}}}`, "status") },
		"change an annotation": func() error {
			return patch("web", `{"metadata": {"annotations": {"external-dns.kubernetes.io/hostname": "x.example.com"}}}`, "status")
		},
		"have a Service deleted with an owner that does not exist": func() error {
			owner := `{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-0000-0000-000000000000"}`
			return patch("dns", `{"metadata": {"ownerReferences": [`+owner+`]}}`, "status")
		},
		"keep a Service from being deleted": func() error {
			return patch("dns", `{"metadata": {"finalizers": ["example.com/other", "`+mark+`"]}}`, "status")
		},
		"remove the finalizer of another": func() error { return patch("web", `{"metadata": {"finalizers": ["`+mark+`"]}}`, "status") },
		"delete a Service": func() error {
			return api.CoreV1().Services("default").Delete(t.Context(), "dns", metav1.DeleteOptions{})
		},
		"create a Service": func() error {
			_, err := api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		},
		"read a Secret": func() error {
			_, err := api.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"change a node": func() error {
			_, err := api.CoreV1().Nodes().Patch(t.Context(), r.machines()[0].name, types.MergePatchType, []byte(`{"metadata": {"labels": {"x": "y"}}}`), metav1.PatchOptions{})
			return err
		},
	} {
		if err := attempt(); !refused(err) {
			t.Errorf("the controller of load balancers can %s: %v", what, err)
		}
	}
	r.check(patch("web", `{"status": {"loadBalancer": {"ingress": null}}}`, "status"))
	r.check(patch("web", `{"metadata": {"finalizers": ["example.com/other"]}}`, "status"))
}
