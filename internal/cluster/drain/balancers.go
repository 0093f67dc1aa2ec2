// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// BalancerDelay is how long controllers have to take a node out of the load balancers of Services. AWS deregisters a
// target from a load balancer within some seconds.
const BalancerDelay = 30 * time.Second

// waitsForBalancers is what a drain waits for when no pod is left.
const waitsForBalancers = "load balancers of Services to take it out"

// HasLoadBalancers reports whether the cluster has Services of type LoadBalancer.
func HasLoadBalancers(ctx context.Context, client kubernetes.Interface) (bool, error) {
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list services: %w", err)
	}

	for _, s := range list.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			return true, nil
		}
	}

	return false, nil
}

// IsExcluded reports whether somebody else than Exclude has taken a node out of the load balancers of Services.
func IsExcluded(node corev1.Node) bool {
	value, isSet := node.Labels[corev1.LabelNodeExcludeBalancers]

	return isSet && value != excludedValue
}

// Exclude makes controllers take a node out of the load balancers of Services, unless it is out already. It is for a
// node without pods that serve: with externalTrafficPolicy: Local, no other node can take over their requests. A node
// that does not exist is no error.
func Exclude(ctx context.Context, client kubernetes.Interface, node string) error {
	return changeExclusion(ctx, client, node, "", excludedValue)
}

// Include undoes Exclude. If somebody else took the node out, it stays out.
func Include(ctx context.Context, client kubernetes.Interface, node string) error {
	return changeExclusion(ctx, client, node, excludedValue, nil)
}

// changeExclusion changes the label by which a node is taken out of load balancers, if the label is from now. Empty
// means that it is not set, and so does a value of nil.
func changeExclusion(ctx context.Context, client kubernetes.Interface, name, from string, to any) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}

	if value, isSet := node.Labels[corev1.LabelNodeExcludeBalancers]; value != from || isSet != (from != "") {
		return nil
	}

	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{corev1.LabelNodeExcludeBalancers: to}},
	})
	if err != nil {
		return fmt.Errorf("encode the labels of node %s: %w", name, err)
	}

	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change whether node %s is in load balancers: %w", name, err)
	}

	return nil
}
