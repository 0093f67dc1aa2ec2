// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// observer reads what a rolling update decides on.
type observer struct {
	now      func() time.Time // of the cluster
	machines machineLister
	client   kubernetes.Interface
	settings allSettings
	// former are the launch template versions of a rollback, by group and slot.
	former map[string]formerVersion
	// holdsLock is set while the cluster's lock is held: nodes that were cordoned for an earlier machine are uncordoned.
	holdsLock bool
}

// machineLister lists the groups and machines of the cluster, without what Kubernetes knows of them.
type machineLister interface {
	List(ctx context.Context) ([]rollout.Group, []rollout.Machine, error)
}

// observe reads everything once. An API that does not answer is part of the observation.
func (o observer) observe(ctx context.Context) (rollout.Observation, error) {
	groups, machines, err := o.machines.List(ctx)
	if err != nil {
		return rollout.Observation{}, err
	}

	for i := range groups {
		groups[i].Policy = o.settings.of(groups[i].Name).policy(groups[i].Size)
		if groups[i].Slot != "" {
			groups[i].Policy.MaxSurge = o.settings.of(groups[i].Name).handOverSurge(countSlots(groups))
		}
	}

	out := rollout.Observation{Now: o.now(), Groups: groups, Machines: machines}
	if err := o.addKubernetes(ctx, &out); err != nil {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}

		return out, nil // APIReady is not set
	}

	out.APIReady = true

	return out, nil
}

// addKubernetes adds the nodes, the etcd members and the gates.
func (o observer) addKubernetes(ctx context.Context, out *rollout.Observation) error {
	nodes, err := o.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}

	members, err := o.readLeases(ctx)
	if err != nil {
		return err
	}

	byInstance := map[string]corev1.Node{}
	for _, n := range nodes.Items {
		byInstance[n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]] = n
	}

	documents := map[string]string{}
	for _, g := range out.Groups {
		documents[groupKey(g.Name, g.Slot)] = g.Document
	}

	for i := range out.Machines {
		m := &out.Machines[i]
		m.Member = members.stateOf(m.ID, m.Slot)
		m.Prepared = members.prepared[m.ID] == m.Slot && m.Slot != ""
		m.MemberMissing = members.missing[m.ID]
		node, found := byInstance[m.ID]
		if !found {
			continue
		}

		if err := o.addNode(ctx, m, node); err != nil {
			return err
		}

		o.addDocument(m, node, documents[groupKey(m.Group, m.Slot)])
	}

	out.Alarms = members.alarms()
	out.Changing = findChanging(members.lock, *out)
	out.FailedGates, err = o.failedGates(ctx)

	return err
}

// addDocument adds what the agent of a machine reports of its node document: what it follows, and how far it is with the
// one that it is to follow, which is that of its group, or the former one during a rollback.
func (o observer) addDocument(m *rollout.Machine, node corev1.Node, document string) {
	revision := reportedRevision(m.ID, node)
	m.IsApplying = revision.State == report.RevisionApplying

	waits := len(revision.Pending) > 0 // a part of the document waits for a new machine
	if revision.State == report.RevisionCurrent && !waits {
		m.Followed = revision.Followed
	}

	back := o.former[groupKey(m.Group, m.Slot)]

	switch {
	case back.version == m.Version && back.document != "":
		addRevision(m, node, back.document)
	case m.DiffersInDocument:
		addRevision(m, node, document)
	default:
		addRefusal(m, revision, document)
	}
}

// reportedRevision returns what the agent of a machine reports of its node document; zero for an agent of another
// version, and for the report of a former machine.
func reportedRevision(machine string, node corev1.Node) report.Revision {
	var r report.Report
	err := json.Unmarshal([]byte(node.Annotations[report.Annotation]), &r)
	if err != nil || r.Machine != machine {
		return report.Revision{}
	}

	return r.Revision
}

// addRevision adds how far a machine follows a node document, by its own report.
func addRevision(m *rollout.Machine, node corev1.Node, document string) {
	revision := reportedRevision(m.ID, node)
	if document == "" || revision.State == "" {
		return
	}

	m.IsFollowing = revision.NeedsNoMachine(document)
	if revision.Followed == document {
		m.Pending = revision.Pending
	}

	switch revision.State {
	case report.RevisionWaiting:
		m.IsApplying = revision.Desired == document
	case report.RevisionRefused:
		addRefusal(m, revision, document)
		m.IsUnaware = revision.Desired != document && revision.Followed != document
	case report.RevisionCurrent, report.RevisionPending:
		m.IsUnaware = revision.Followed != document && revision.Desired != document
	case report.RevisionApplying, report.RevisionUnknown:
	}
}

// addRefusal adds that a machine has refused a document, also if its template differs in other things, too.
func addRefusal(m *rollout.Machine, revision report.Revision, document string) {
	if revision.State == report.RevisionRefused && revision.Desired == document && document != "" {
		m.RefusedDocument = revision.Cause
		m.RefusedSerial = revision.DesiredSerial
	}
}

// addNode adds what the node of a machine shows. Under the lock, a node that was cordoned for an earlier machine of the
// same name is uncordoned. Whether a node is drained is not observed: the drain of a started node is repeated.
func (o observer) addNode(ctx context.Context, m *rollout.Machine, node corev1.Node) error {
	m.NodeName = node.Name
	m.Excluded = drain.IsExcluded(node)
	addReadiness(m, node)

	m.Marked = slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == rollout.OutdatedTaint })

	switch value, set := node.Annotations[rollout.StartedAnnotation]; {
	case !set:
		return nil
	case value != m.ID && o.holdsLock:
		return drain.Uncordon(ctx, o.client, node, rollout.StartedAnnotation, report.HandOverAnnotation)
	}

	m.Started = node.Annotations[rollout.StartedAnnotation] == m.ID
	if m.Started {
		to, at, _ := strings.Cut(node.Annotations[report.HandOverAnnotation], " ")
		m.HandOverTo = to
		m.HandOverSince = parseTagTime(at)
	}

	return nil
}

// addReadiness adds whether the node of a machine is Ready, and since when. A node that the cloud controller manager has not
// initialized is not: no pods are scheduled there.
func addReadiness(m *rollout.Machine, node corev1.Node) {
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == kube.TaintUninitialized }) {
		m.NeverReady = true
		return
	}

	for _, c := range node.Status.Conditions {
		since := c.LastTransitionTime.Time
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			m.NodeReady = true
			m.ReadySince = since
		default:
			m.DownSince = since
			m.NeverReady = c.Status == corev1.ConditionFalse && since.Sub(node.CreationTimestamp.Time) < registrationTime
		}
	}
}

// registrationTime is how long after the creation of its node a kubelet sets the condition Ready for the first time, at most.
const registrationTime = 5 * time.Second

// countSlots returns the number of slots of the control plane.
func countSlots(groups []rollout.Group) int {
	n := 0
	for _, g := range groups {
		if g.Slot != "" {
			n++
		}
	}

	return n
}

// failedGates returns which Deployments and DaemonSets of kube-system have no available pod.
func (o observer) failedGates(ctx context.Context) ([]string, error) {
	deployments, err := o.client.AppsV1().Deployments(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list deployments: %w", err)
	}

	var out []string
	for _, d := range deployments.Items {
		if d.Spec.Replicas != nil && *d.Spec.Replicas > 0 && d.Status.AvailableReplicas == 0 {
			out = append(out, fmt.Sprintf("deployment %s/%s has no available pod", d.Namespace, d.Name))
		}
	}

	daemons, err := o.client.AppsV1().DaemonSets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list daemon sets: %w", err)
	}

	for _, d := range daemons.Items {
		if d.Status.DesiredNumberScheduled > 0 && d.Status.NumberAvailable == 0 {
			out = append(out, fmt.Sprintf("daemon set %s/%s has no available pod", d.Namespace, d.Name))
		}
	}

	return out, nil
}
