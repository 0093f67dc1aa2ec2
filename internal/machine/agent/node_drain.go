// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/podfate"
)

const (
	// terminatingAnnotation of a Node has the reason why its machine ends.
	terminatingAnnotation = "slipway.dev/terminating"
	// excludeLabel is the label of a Node that ends.
	excludeLabel = kube.LabelExcluded
)

// nodeDrain evicts the pods of one node. With a node's own identity it works for that node only: the node authorizer
// and the admission plugin NodeRestriction let a node read and evict the pods that are bound to it, and change its own
// Node except for taints and reserved labels. No further rights are needed.
type nodeDrain struct {
	api  kube.Client
	node string
	now  func() time.Time
}

// drainedPod holds the fields of a pod that a drain reads.
type drainedPod struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// name returns the name of the pod for people.
func (p drainedPod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// fate returns what the drain does with the pod.
func (p drainedPod) fate() podfate.Fate {
	_, isStatic := p.Metadata.Annotations["kubernetes.io/config.mirror"]
	facts := podfate.Pod{
		Static:      isStatic,
		Finished:    p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed",
		Terminating: p.Metadata.DeletionTimestamp != "",
	}

	for _, o := range p.Metadata.OwnerReferences {
		if o.Controller {
			facts.Controller = o.Kind
		}
	}

	return podfate.Of(facts)
}

// cordon marks the node as unschedulable, and makes controllers take it out of the load balancers of Services.
func (d nodeDrain) cordon(ctx context.Context, reason string) error {
	return d.api.MergePatch(ctx, "/api/v1/nodes/"+d.node, map[string]any{
		"metadata": map[string]any{
			"annotations": map[string]any{terminatingAnnotation: reason},
			"labels":      map[string]any{excludeLabel: ""},
		},
		"spec": map[string]any{"unschedulable": true},
	})
}

// uncordon undoes cordon. It changes nothing on a node that somebody else cordoned, or that is not registered yet. The label stays
// if the node has it in any case.
func (d nodeDrain) uncordon(ctx context.Context, keepsLabel bool) error {
	var n Node
	path := "/api/v1/nodes/" + d.node
	err := d.api.Get(ctx, path, &n)
	if errors.Is(err, kube.ErrNotFound) || err == nil && n.Metadata.Annotations[terminatingAnnotation] == "" {
		return nil
	}

	if err != nil {
		return err
	}

	metadata := map[string]any{"annotations": map[string]any{terminatingAnnotation: nil}}
	if !keepsLabel {
		metadata["labels"] = map[string]any{excludeLabel: nil}
	}

	return d.api.MergePatch(ctx, path, map[string]any{
		"metadata": metadata,
		"spec":     map[string]any{"unschedulable": false},
	})
}

// hasLoadBalancers reports whether the cluster has Services of type LoadBalancer.
func (d nodeDrain) hasLoadBalancers(ctx context.Context) (bool, error) {
	var list struct {
		Items []struct {
			Spec struct {
				Type string `json:"type"`
			} `json:"spec"`
		} `json:"items"`
	}
	if err := d.api.Get(ctx, "/api/v1/services", &list); err != nil {
		return false, err
	}

	for _, s := range list.Items {
		if s.Spec.Type == "LoadBalancer" {
			return true, nil
		}
	}

	return false, nil
}

// evictOnce tries to evict every pod that is left. It returns what the drain waits for; empty: nothing is left.
func (d nodeDrain) evictOnce(ctx context.Context) (string, error) {
	pods, err := d.listPods(ctx)
	if err != nil {
		return "", err
	}

	var waiting []string
	for _, p := range pods {
		switch p.fate() {
		case podfate.Keep:
		case podfate.Await:
			waiting = append(waiting, p.name()+" is terminating")
		case podfate.Evict:
			if reason := d.evict(ctx, p); reason != "" {
				waiting = append(waiting, p.name()+": "+reason)
			} else {
				waiting = append(waiting, p.name()+" is terminating")
			}
		}
	}

	slices.Sort(waiting)

	return strings.Join(waiting, "; "), nil
}

// countEvictable returns how many pods of the node are neither evicted nor left to the end of the machine.
func (d nodeDrain) countEvictable(ctx context.Context) (int, error) {
	pods, err := d.listPods(ctx)
	n := 0
	for _, p := range pods {
		if p.fate() == podfate.Evict {
			n++
		}
	}

	return n, err
}

// listPods returns the pods of the node.
func (d nodeDrain) listPods(ctx context.Context) ([]drainedPod, error) {
	var list struct {
		Items []drainedPod `json:"items"`
	}
	selector := url.QueryEscape("spec.nodeName=" + d.node)
	err := d.api.Get(ctx, "/api/v1/pods?fieldSelector="+selector, &list)

	return list.Items, err
}

// evict evicts one pod. It returns why the API refused it for now.
func (d nodeDrain) evict(ctx context.Context, p drainedPod) string {
	m := p.Metadata
	body, err := json.Marshal(map[string]any{
		"apiVersion":    "policy/v1",
		"kind":          "Eviction",
		"metadata":      map[string]string{"namespace": m.Namespace, "name": m.Name},
		"deleteOptions": map[string]any{"preconditions": map[string]string{"uid": m.UID}},
	})
	if err != nil {
		return err.Error()
	}

	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", m.Namespace, m.Name)
	_, err = d.api.Do(ctx, http.MethodPost, path, "application/json", body)
	if err == nil || errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return "" // a conflict is another pod of the same name
	}

	return err.Error()
}

// record writes an event about the node. An event that cannot be written is left out.
func (d nodeDrain) record(ctx context.Context, reason, message string) {
	now := d.now().UTC()
	body, err := json.Marshal(map[string]any{
		"apiVersion":     "v1",
		"kind":           "Event",
		"metadata":       map[string]string{"namespace": "default", "generateName": d.node + "."},
		"involvedObject": map[string]string{"apiVersion": "v1", "kind": "Node", "name": d.node, "uid": d.node},
		"type":           "Normal",
		"reason":         reason,
		"message":        message,
		"source":         map[string]string{"component": "slipway-node"},
		"firstTimestamp": now.Format(time.RFC3339),
		"lastTimestamp":  now.Format(time.RFC3339),
		"count":          1,
	})
	if err == nil {
		_, _ = d.api.Do(ctx, http.MethodPost, "/api/v1/namespaces/default/events", "application/json", body)
	}
}
