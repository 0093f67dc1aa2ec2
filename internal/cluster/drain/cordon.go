// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Cordon marks a node as unschedulable and sets an annotation on it, with one request. It is safe to repeat.
func Cordon(ctx context.Context, client kubernetes.Interface, node, annotation, value string) error {
	return patchNode(ctx, client, node, true, map[string]any{annotation: value})
}

// Uncordon undoes Cordon.
func Uncordon(ctx context.Context, client kubernetes.Interface, node, annotation string) error {
	return patchNode(ctx, client, node, false, map[string]any{annotation: nil})
}

// patchNode sets spec.unschedulable and annotations; a nil value removes an annotation.
func patchNode(
	ctx context.Context,
	client kubernetes.Interface,
	node string,
	unschedulable bool,
	annotations map[string]any,
) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"spec":     map[string]any{"unschedulable": unschedulable},
	})
	if err != nil {
		return fmt.Errorf("encode the patch of node %s: %w", node, err)
	}

	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change whether pods are scheduled to node %s: %w", node, err)
	}

	return nil
}
