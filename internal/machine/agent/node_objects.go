// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Node is what the agent reads of a Node object.
type Node struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		Labels            map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}

// missingInstanceGrace is how long a node may have an instance that EC2 does not show: EC2's answers lag behind.
const missingInstanceGrace = 10 * time.Minute

// NodeChanges says which nodes to delete, because their instance has ended, and which to label with their role.
func NodeChanges(nodes []Node, machines []Machine, now time.Time) (gone []Node, roles map[string]string) {
	byID := map[string]Machine{}
	for _, m := range machines {
		byID[m.ID] = m
	}

	roles = map[string]string{}

	for _, n := range nodes {
		id := n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
		if id == "" {
			continue
		}

		m, seen := byID[id]

		switch {
		case !seen && now.Sub(n.Metadata.CreationTimestamp) > missingInstanceGrace,
			m.State == "terminated", m.State == "shutting-down":
			gone = append(gone, n)
		case seen && strings.EqualFold(m.Name, n.Metadata.Name): // a kubelet chooses its provider id, not its name
			label := "node-role.kubernetes.io/worker"
			if m.Role == node.RoleTagControlPlane {
				label = "node-role.kubernetes.io/control-plane"
			}

			if _, ok := n.Metadata.Labels[label]; !ok {
				roles[n.Metadata.Name] = label
			}
		}
	}

	return gone, roles
}

// reconcileNodes keeps Node objects in step with EC2. Every control-plane machine does so; what one has done the others find done.
func (a *Agent) reconcileNodes(ctx context.Context, api kube.Client) error {
	var list struct {
		Items []Node `json:"items"`
	}
	if err := api.Get(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}

	machines, err := a.ec2Client().ListMachines(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(machines, func(m Machine) bool { return m.ID == a.instance.ID }) {
		return fmt.Errorf(
			"EC2 shows %d machines of cluster %s and not this one, %s: no node is deleted by that",
			len(machines),
			a.doc.Cluster,
			a.instance.ID,
		)
	}

	gone, roles := NodeChanges(list.Items, machines, a.Now())
	var errs []error

	for _, n := range gone {
		a.Log.Info(
			"node's instance has ended",
			slog.String("node", n.Metadata.Name),
			slog.String("instance", n.Spec.ProviderID),
		)

		errs = append(errs, deleteNode(ctx, api, n))
	}

	for name, label := range roles {
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{label: ""}}}
		errs = append(errs, api.MergePatch(ctx, "/api/v1/nodes/"+name, patch))
	}

	return errors.Join(errs...)
}

// deleteNode deletes this very object: another machine may have got the address, and so the name, meanwhile.
func deleteNode(ctx context.Context, api kube.Client, n Node) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"uid": n.Metadata.UID},
	})
	if err != nil {
		return fmt.Errorf("delete node %s: %w", n.Metadata.Name, err)
	}

	_, err = api.Do(ctx, http.MethodDelete, "/api/v1/nodes/"+n.Metadata.Name, "application/json", body)
	if errors.Is(err, kube.ErrNotFound) || errors.Is(err, kube.ErrConflict) {
		return nil
	}

	return err
}

// ensureNodeRegistered restarts the kubelet if its Node is gone: it registers only when it starts.
func (a *Agent) ensureNodeRegistered(ctx context.Context, api kube.Client) error {
	var n Node
	err := api.Get(ctx, "/api/v1/nodes/"+a.instance.Name, &n)
	if !errors.Is(err, kube.ErrNotFound) {
		return err
	}

	since, err := a.Run.Run(
		ctx,
		"systemctl",
		"show",
		"kubelet",
		"--property=ActiveEnterTimestamp",
		"--value",
		"--timestamp=unix",
	)
	if err != nil {
		return err
	}

	var started int64
	if _, err := fmt.Sscanf(since, "@%d", &started); err != nil ||
		a.Now().Sub(time.Unix(started, 0)) < time.Minute {
		return nil //nolint:nilerr // not started yet, or just now: it is about to register
	}

	a.Log.Info("the node is gone; kubelet is to register again")
	_, err = a.Run.Run(ctx, "systemctl", "restart", "--no-block", "kubelet")

	return err
}

// lease is what this machine says of itself in the API; the operator's validate reads the annotations.
type lease struct {
	name, holder string
	note         map[string]string
	now          time.Time
}

func (l lease) applyTo(ctx context.Context, api kube.Client) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": l.name, "namespace": "kube-system", "annotations": l.note},
		"spec": map[string]any{
			"holderIdentity": l.holder, "leaseDurationSeconds": 40, "renewTime": l.now.UTC().Format("2006-01-02T15:04:05.000000Z"),
		},
	})
	if err != nil {
		return fmt.Errorf("print lease %s: %w", l.name, err)
	}

	return api.Apply(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"+l.name, body)
}
