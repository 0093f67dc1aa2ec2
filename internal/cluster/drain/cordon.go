// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Cordon marks a node as unschedulable and sets an annotation on it, with one request. It is safe to repeat.
func Cordon(ctx context.Context, client kubernetes.Interface, node, annotation, value string) error {
	return patchNode(ctx, client, node, true, map[string]any{annotation: value})
}

// Uncordon undoes Cordon and removes annotations.
func Uncordon(ctx context.Context, client kubernetes.Interface, node string, annotations ...string) error {
	removed := map[string]any{}
	for _, a := range annotations {
		removed[a] = nil
	}

	return patchNode(ctx, client, node, false, removed)
}

// Annotate sets an annotation on a node.
func Annotate(ctx context.Context, client kubernetes.Interface, node, annotation, value string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{annotation: value}},
	})
	if err != nil {
		return fmt.Errorf("encode the patch of node %s: %w", node, err)
	}

	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set annotation %s of node %s: %w", annotation, node, err)
	}

	return nil
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

// SetTaint adds a taint with this key and effect PreferNoSchedule to a node, or removes it. If the node has changed
// since it was read, it fails with a conflict, and can be repeated with the node as it is then.
func SetTaint(ctx context.Context, client kubernetes.Interface, name, key string, present bool) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}

	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == key })
	if present {
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule})
	}

	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encode the taints of node %s: %w", name, err)
	}

	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the taints of node %s: %w", name, err)
	}

	return nil
}
