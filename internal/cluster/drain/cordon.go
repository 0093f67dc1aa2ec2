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

// excludedValue is the value of the label by which a node is taken out of the load balancers of Services, if Exclude
// has set it.
const excludedValue = "drain"

// CordonRequest asks to cordon a node.
type CordonRequest struct {
	// Node is the name of the node.
	Node string
	// Annotation and Value are set on the node.
	Annotation, Value string
}

// Cordon marks a node as unschedulable and sets an annotation on it, with one request. It is safe to repeat.
func Cordon(ctx context.Context, client kubernetes.Interface, req CordonRequest) error {
	metadata := map[string]any{"annotations": map[string]any{req.Annotation: req.Value}}

	return patchNode(ctx, client, req.Node, true, metadata)
}

// Uncordon undoes Cordon and Exclude, and removes annotations.
func Uncordon(ctx context.Context, client kubernetes.Interface, node corev1.Node, annotations ...string) error {
	removed := map[string]any{}
	for _, a := range annotations {
		removed[a] = nil
	}

	metadata := map[string]any{"annotations": removed}
	if node.Labels[corev1.LabelNodeExcludeBalancers] == excludedValue {
		metadata["labels"] = map[string]any{corev1.LabelNodeExcludeBalancers: nil}
	}

	return patchNode(ctx, client, node.Name, false, metadata)
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

// patchNode sets spec.unschedulable and metadata; a nil value in it removes an annotation or a label.
func patchNode(
	ctx context.Context,
	client kubernetes.Interface,
	node string,
	unschedulable bool,
	metadata map[string]any,
) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
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
