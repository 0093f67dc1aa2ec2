// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// StuckBudget is a disruption budget that allows no eviction although all of its pods are healthy.
type StuckBudget struct {
	// Name is namespace/name.
	Name string
	// Required is the number of pods that must stay healthy.
	Required int32
	// Pods is the number of pods that the budget selects.
	Pods int32
}

// StuckBudgets returns the disruption budgets that no drain can satisfy: they require as many healthy pods as there
// are pods.
func StuckBudgets(ctx context.Context, client kubernetes.Interface) ([]StuckBudget, error) {
	list, err := client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list disruption budgets: %w", err)
	}

	var out []StuckBudget
	for _, b := range list.Items {
		if b.Status.ExpectedPods > 0 && b.Status.DesiredHealthy >= b.Status.ExpectedPods {
			out = append(out, StuckBudget{
				Name:     b.Namespace + "/" + b.Name,
				Required: b.Status.DesiredHealthy,
				Pods:     b.Status.ExpectedPods,
			})
		}
	}

	return out, nil
}
