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

// Node holds the fields of a Node object that the agent reads.
type Node struct {
	Metadata struct {
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		Conditions []nodeCondition `json:"conditions"`
	} `json:"status"`
}

// nodeCondition holds the fields of a condition of a Node that the agent reads.
type nodeCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// isReady reports whether the node is Ready.
func (n Node) isReady() bool {
	return slices.Contains(n.Status.Conditions, nodeCondition{Type: "Ready", Status: "True"})
}

// machineID returns the instance id in the node's provider id, which the kubelet writes.
func (n Node) machineID() string {
	return n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
}

// hasRoleLabel reports whether the node has a label by which kubectl shows its role.
func (n Node) hasRoleLabel() bool {
	for label := range n.Metadata.Labels {
		if strings.HasPrefix(label, rolePrefix) {
			return true
		}
	}

	return false
}

// rolePrefix begins the label by which kubectl shows the role of a node.
const rolePrefix = "node-role.kubernetes.io/"

// missingInstanceGrace is how old a Node must be before a missing instance counts as terminated,
// because EC2 is eventually consistent.
const missingInstanceGrace = 10 * time.Minute

// NodeChanges returns the nodes to delete because they have no live machine or one that sleeps in a warm pool, and the role
// label to add by node name.
// A node belongs to the live machine of its name. Its provider id only tells a node from one of an earlier machine of
// this name: a kubelet can forge it or leave it out, but not the name in its certificate. EC2 certainly lists the machines of nodes
// that were created before listed.
func NodeChanges(nodes []Node, machines []Machine, listed time.Time) (terminated []Node, roles map[string]string) {
	ended := map[string]bool{}   // by id
	live := map[string]Machine{} // by name

	for _, m := range machines {
		ended[m.ID] = m.isTerminated()
		if m.Name != "" && !m.isTerminated() {
			live[strings.ToLower(m.Name)] = m
		}
	}

	roles = map[string]string{}

	for _, n := range nodes {
		id := n.machineID()
		own, alive := live[strings.ToLower(n.Metadata.Name)]
		isOwn := alive && id == own.ID
		isOld := n.Metadata.CreationTimestamp.Before(listed)

		switch {
		case ended[id], own.sleeps(n), isOld && !isOwn && (!alive || id != ""):
			terminated = append(terminated, n)
		case isOwn:
			label := roleLabel(own)
			if _, ok := n.Metadata.Labels[label]; !ok {
				roles[n.Metadata.Name] = label
			}
		}
	}

	return terminated, roles
}

// roleLabel returns the label of a machine's node by which kubectl shows its role.
func roleLabel(m Machine) string {
	if m.Role == node.RoleTagControlPlane {
		return rolePrefix + "control-plane"
	}

	return rolePrefix + "worker"
}

// isTerminated reports whether the machine will never run again.
func (m Machine) isTerminated() bool { return m.State == "terminated" || m.State == "shutting-down" }

// sleeps reports whether the machine of a node is in a warm pool: it was drained, and then stopped. Its kubelet registers the node
// again when Auto Scaling starts it. A machine that somebody else stops keeps its node.
func (m Machine) sleeps(n Node) bool {
	isStopped := m.State == "stopping" || m.State == "stopped"

	return isStopped && strings.HasSuffix(n.Spec.ProviderID, "/"+m.ID) && n.Metadata.Annotations[terminatingAnnotation] != ""
}

// nodeWork is what [Agent.reconcileNodes] has to change.
type nodeWork struct {
	// terminated are the nodes to delete.
	terminated []Node
	// roles are the labels to add, by node name.
	roles map[string]string
	// live is the merge patch of the list of live machines.
	live map[string]any
}

// isEmpty reports whether there is nothing to change.
func (w nodeWork) isEmpty() bool { return len(w.terminated)+len(w.roles)+len(w.live) == 0 }

// nodeRules are the times by which [findNodeWork] judges nodes.
type nodeRules struct {
	// listed is the time before which a node must have been created for EC2 to list its machine for certain.
	listed time.Time
	// external is the time since when a machine must have ended for its node to be left to the cloud controller manager; zero if
	// there is none.
	external time.Time
}

// findNodeWork returns what has to change for the nodes and the list of live machines have.
func findNodeWork(nodes []Node, have map[string]string, machines []Machine, rules nodeRules) nodeWork {
	terminated, roles := NodeChanges(nodes, machines, rules.listed)
	if !rules.external.IsZero() {
		terminated = slices.DeleteFunc(terminated, func(n Node) bool {
			return isLeftToController(n, machines, rules.external)
		})
	}

	return nodeWork{terminated: terminated, roles: roles, live: diffLiveMachines(have, liveWorkers(machines))}
}

// mayHaveChanged reports whether a node suggests that its machine has started or ended a moment ago.
func mayHaveChanged(nodes []Node, now time.Time) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool {
		isNew := now.Sub(n.Metadata.CreationTimestamp) <= missingInstanceGrace
		return !n.isReady() || isNew && !n.hasRoleLabel()
	})
}

// reconcileNodes deletes Nodes whose instance has terminated and adds role labels. Every control-plane machine runs
// it; the operations are idempotent. It changes nothing by an earlier answer of EC2: since then, a machine may have
// joined.
func (a *Agent) reconcileNodes(ctx context.Context, api kube.Client) error {
	var list struct {
		Items []Node `json:"items"`
	}
	if err := api.Get(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}

	have, exists, err := readLiveMachines(ctx, api)
	if err != nil {
		return err
	}

	machines, err := a.machines.listRecent(ctx, a.ec2Client(), a.Now())
	if err != nil {
		return err
	}

	work := findNodeWork(list.Items, have, machines, rulesOfNodes(a))
	if exists && work.isEmpty() && !mayHaveChanged(list.Items, a.Now()) {
		return nil
	}

	if machines, err = a.machines.listNow(ctx, a.ec2Client(), a.Now()); err != nil {
		return err
	}

	if !slices.ContainsFunc(machines, func(m Machine) bool { return m.ID == a.instance.ID }) {
		return fmt.Errorf(
			"EC2 lists %d machines of cluster %s without this machine, %s: no nodes were deleted",
			len(machines),
			a.doc.Cluster,
			a.instance.ID,
		)
	}

	work = findNodeWork(list.Items, have, machines, rulesOfNodes(a))

	return errors.Join(recordLiveMachines(ctx, api, exists, work.live), changeNodes(ctx, a, api, work))
}

// listedSince returns before when a node must have been created for EC2 to list its machine for certain. A restored backup may
// have nodes of another cluster, with the names of this one's: they are older than the restoration.
func listedSince(a *Agent) time.Time {
	listed := a.Now().Add(-missingInstanceGrace)
	if restored := a.restoredAt.Load(); restored != nil && restored.After(listed) {
		return *restored
	}

	return listed
}

// changeNodes deletes and labels nodes.
func changeNodes(ctx context.Context, a *Agent, api kube.Client, work nodeWork) error {
	var errs []error
	for _, n := range work.terminated {
		a.Log.Info(
			"deleting node of an instance that has terminated or sleeps",
			slog.String("node", n.Metadata.Name),
			slog.String("instance", n.Spec.ProviderID),
		)

		errs = append(errs, deleteNode(ctx, api, n))
	}

	for name, label := range work.roles {
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{label: ""}}}
		errs = append(errs, api.MergePatch(ctx, "/api/v1/nodes/"+name, patch))
	}

	return errors.Join(errs...)
}

// deleteNode deletes this object by UID, because another machine may since have registered with the
// same address and name.
func deleteNode(ctx context.Context, api kube.Client, n Node) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion":    "v1",
		"kind":          "DeleteOptions",
		"preconditions": map[string]string{"uid": n.Metadata.UID},
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

// ensureNodeRegistered restarts the kubelet if its Node object was deleted: the kubelet registers
// only when it starts.
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

	// If systemd does not report a start, or a recent one, the kubelet is about to register.
	started, ok := parseUnixTimestamp(since)
	if !ok || a.Now().Sub(started) < time.Minute {
		return nil
	}

	a.Log.Info("Node object is missing; restarting the kubelet to register again")
	_, err = a.Run.Run(ctx, "systemctl", "restart", "--no-block", "kubelet")

	return err
}

// parseUnixTimestamp parses a timestamp as systemctl prints it with --timestamp=unix, such as
// @1763700000. It ignores what follows, because the runner appends warnings of systemctl.
func parseUnixTimestamp(text string) (time.Time, bool) {
	var seconds int64
	if _, err := fmt.Sscanf(text, "@%d", &seconds); err != nil {
		return time.Time{}, false
	}

	return time.Unix(seconds, 0), true
}

// lease is a Lease with this machine's state as annotations, which slipway validate reads.
type lease struct {
	name string
	// holder is the instance id.
	holder      string
	annotations map[string]string
	now         time.Time
}

// applyTo creates or updates the Lease with server-side apply.
func (l lease) applyTo(ctx context.Context, api kube.Client) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata": map[string]any{
			"name":        l.name,
			"namespace":   "kube-system",
			"annotations": l.annotations,
		},
		"spec": map[string]any{
			"holderIdentity":       l.holder,
			"leaseDurationSeconds": 40,
			"renewTime":            l.now.UTC().Format("2006-01-02T15:04:05.000000Z"),
		},
	})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", l.name, err)
	}

	return api.Apply(ctx, leasesPath+"/"+l.name, body)
}
