// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
