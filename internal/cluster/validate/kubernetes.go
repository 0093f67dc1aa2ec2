// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

// isSystemNamespace reports whether the pods of a namespace are part of the cluster itself.
func isSystemNamespace(name string) bool {
	return name == metav1.NamespaceSystem || name == "kube-flannel"
}

// isSystemPod reports whether the cluster needs a pod. Pods that completed or are being deleted do not count.
func isSystemPod(p corev1.Pod) bool {
	return isSystemNamespace(p.Namespace) && p.Status.Phase != corev1.PodSucceeded &&
		p.DeletionTimestamp == nil
}

// nodeFact returns what health needs to know of a node.
func nodeFact(n corev1.Node) health.Node {
	out := health.Node{Name: n.Name, Reason: "no Ready condition yet"}
	out.Instance = n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
			out.Reason = c.Message
		}
	}

	return out
}

// memberFact reads the state of an etcd member from the annotations that its agent writes on the member's
// lease.
func memberFact(slot string, notes map[string]string, renewed *metav1.MicroTime) health.Member {
	m := health.Member{
		Slot:    slot,
		Healthy: notes["slipway.dev/healthy"] == "true",
		Learner: notes["slipway.dev/learner"] == "true",
		Reason:  notes["slipway.dev/reason"],
	}
	if renewed != nil {
		m.ReportedAt = renewed.Time
	}

	return m
}

// podFact returns what health needs to know of a pod.
func podFact(p corev1.Pod) health.Pod {
	out := health.Pod{
		Namespace: p.Namespace,
		Name:      p.Name,
		Node:      p.Spec.NodeName,
		Reason:    "phase " + string(p.Status.Phase),
	}

	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			out.Running = true
			out.Reason = ""
			return out

		case c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue:
			out.Reason = "not scheduled: " + c.Message
		}
	}

	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			out.Reason = "container " + s.Name + ": " + strings.TrimSpace(w.Reason+" "+w.Message)
		}
	}

	return out
}
