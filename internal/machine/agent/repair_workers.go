// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/repair"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

const (
	repairInterval = 20 * time.Second
	// repairLease is how long the elected machine leads without renewing. It is longer than one round of repair.
	repairLease = 90 * time.Second
	// repairLeaseName is the Lease of the elected machine.
	repairLeaseName = "slipway-repair"
	// repairAnnotation of a Node is when its repair began, and whether the node was cordoned before.
	repairAnnotation = "slipway.dev/repair"
	// cordonedBefore ends the value of repairAnnotation of a node that somebody had cordoned.
	cordonedBefore = " cordoned"
	// tagRepair of an Auto Scaling group has the repair policy.
	tagRepair = "slipway.dev/repair"
)

// RepairAPI lists the operations of Auto Scaling by which control-plane machines replace workers and each other.
type RepairAPI interface {
	ScalingAPI
	autoscaling.DescribeAutoScalingGroupsAPIClient
	TerminateInstanceInAutoScalingGroup(
		context.Context,
		*autoscaling.TerminateInstanceInAutoScalingGroupInput,
		...func(*autoscaling.Options),
	) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error)
	SetInstanceHealth(
		context.Context,
		*autoscaling.SetInstanceHealthInput,
		...func(*autoscaling.Options),
	) (*autoscaling.SetInstanceHealthOutput, error)
}

// repairer replaces workers whose node is not Ready for too long. One machine of the control plane does it.
type repairer struct {
	agent    *Agent
	api      kube.Client
	scaling  RepairAPI
	election *election
	// peers is the repair of the control plane.
	peers *peerRepair
	// health returns why the control plane is not healthy, except for its nodes; empty: it is.
	health func(context.Context) string
	// groups are the Auto Scaling groups by the machines in them, as they were listed last.
	groups map[string]string
	// nodes are the names of nodes by instance id, as they were listed last.
	nodes map[string]repairNode
}

// newRepairer returns a repairer. It needs the right to terminate workers.
func newRepairer(a *Agent, api kube.Client) *repairer {
	return &repairer{
		agent:   a,
		api:     api,
		scaling: a.Scaling,
		election: &election{
			api:      api,
			name:     repairLeaseName,
			holder:   a.instance.ID,
			duration: repairLease,
			now:      a.Now,
		},
		peers: newPeerRepair(a, api),
		health: func(ctx context.Context) string {
			manager := a.newEtcdManager()
			members := manager.Members(ctx, "")

			return EtcdNotReadyReason(slotNames(a), members, manager.Healthy(ctx, etcd.ClientURL))
		},
	}
}

// repairNode holds the fields of a Node that the repair reads.
type repairNode struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
		Labels      map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ProviderID    string `json:"providerID"`
		Unschedulable bool   `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type               string    `json:"type"`
			Status             string    `json:"status"`
			LastTransitionTime time.Time `json:"lastTransitionTime"`
		} `json:"conditions"`
	} `json:"status"`
}

// instance returns the id of the node's instance.
func (n repairNode) instance() string {
	return n.Spec.ProviderID[strings.LastIndex(n.Spec.ProviderID, "/")+1:]
}

// isOfAnother reports whether the node names another machine than that of its name, which a kubelet can write if it registers
// without the admission policy. live are the ids of workers by the names of their nodes.
func (n repairNode) isOfAnother(live map[string]string) bool {
	id, isKnown := live[strings.ToLower(n.Metadata.Name)]
	return isKnown && id != n.instance()
}

// isControlPlane reports whether the node is of the control plane.
func (n repairNode) isControlPlane() bool {
	_, ok := n.Metadata.Labels["node-role.kubernetes.io/control-plane"]
	return ok
}

// ready returns whether the node is Ready, and since when.
func (n repairNode) ready() (bool, time.Time) {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", c.LastTransitionTime
		}
	}

	return false, time.Time{}
}

// began returns when the repair of the node began; zero if it has not.
func (n repairNode) began() time.Time {
	text := strings.TrimSuffix(n.Metadata.Annotations[repairAnnotation], cordonedBefore)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}

	return at
}

// isCordonedByOthers reports whether somebody had cordoned the node before its repair began, or a rolling update has since.
func (n repairNode) isCordonedByOthers() bool {
	return strings.HasSuffix(n.Metadata.Annotations[repairAnnotation], cordonedBefore) ||
		n.Metadata.Annotations[report.RollingUpdateAnnotation] != ""
}

// run does one round of repair if this machine is elected. It calls Auto Scaling only while a machine does not work.
func (r *repairer) run(ctx context.Context) error {
	leads := false
	var err error
	if isFitToRepair(r.agent) {
		leads, err = r.election.lead(ctx)
	}

	if err != nil || !leads {
		r.agent.conditions.Clear(report.Repair)
		r.agent.conditions.Clear(report.PeerRepair)

		return err
	}

	var list struct {
		Items []repairNode `json:"items"`
	}
	if err := r.api.Get(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}

	return errors.Join(r.peers.run(ctx, list.Items), r.repairWorkers(ctx, list.Items))
}

// repairWorkers does one round of the repair of workers.
func (r *repairer) repairWorkers(ctx context.Context, nodes []repairNode) error {
	if !needsRepair(nodes) {
		r.agent.conditions.Clear(report.Repair)
		return nil
	}

	o, err := r.observe(ctx, nodes)
	if err != nil {
		return err
	}

	d := repair.Decide(o)
	r.reportDecision(d)

	var errs []error
	for _, action := range d.Actions {
		errs = append(errs, r.act(ctx, action))
	}

	return errors.Join(errs...)
}

// needsRepair reports whether a worker is not Ready, or in repair.
func needsRepair(nodes []repairNode) bool {
	for _, n := range nodes {
		ready, _ := n.ready()
		if !n.isControlPlane() && (!ready || !n.began().IsZero()) {
			return true
		}
	}

	return false
}

// observe returns what the decision depends on.
func (r *repairer) observe(ctx context.Context, nodes []repairNode) (repair.Observation, error) {
	o := repair.Observation{Now: r.agent.Now(), ControlPlane: r.health(ctx)}
	live, _, err := readLiveMachines(ctx, r.api)
	if err != nil {
		return o, err
	}

	r.nodes = map[string]repairNode{}
	r.groups = map[string]string{}
	for _, n := range nodes {
		if n.isOfAnother(live) {
			continue
		}

		r.nodes[n.instance()] = n
		if ready, _ := n.ready(); n.isControlPlane() && !ready && o.ControlPlane == "" {
			o.ControlPlane = "node " + n.Metadata.Name + " is not Ready"
		}
	}

	in := &autoscaling.DescribeAutoScalingGroupsInput{Filters: []types.Filter{
		{Name: aws.String("tag:" + tagCluster), Values: []string{r.agent.doc.Cluster}},
	}}
	for pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(r.scaling, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return o, fmt.Errorf("list the auto scaling groups of cluster %s: %w", r.agent.doc.Cluster, err)
		}

		for _, g := range page.AutoScalingGroups {
			if err := r.addGroup(ctx, &o, g); err != nil {
				return o, err
			}
		}
	}

	return o, nil
}

// groupTags returns the tags of an Auto Scaling group.
func groupTags(g types.AutoScalingGroup) map[string]string {
	out := map[string]string{}
	for _, t := range g.Tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return out
}

// addGroup adds an Auto Scaling group and its machines to an observation. Only groups of workers have a policy.
func (r *repairer) addGroup(ctx context.Context, o *repair.Observation, g types.AutoScalingGroup) error {
	tags := groupTags(g)
	id := tags[tagClusterID]
	if id != "" && r.agent.doc.ClusterID != "" && id != r.agent.doc.ClusterID {
		return nil // of another cluster with this name
	}

	name := ""
	if tags[tagRole] == node.RoleTagWorker {
		policy, err := repair.ParsePolicy(tags[tagRepair])
		if err != nil {
			return fmt.Errorf(
				"read tag %s of auto scaling group %s: %w",
				tagRepair,
				aws.ToString(g.AutoScalingGroupName),
				err,
			)
		}

		name = tags[tagGroup]
		o.Groups = append(o.Groups, repair.Group{Name: name, Policy: policy, Size: int(aws.ToInt32(g.DesiredCapacity))})
	}

	for _, i := range g.Instances {
		m, err := r.newMachine(ctx, name, i)
		if err != nil {
			return err
		}

		r.groups[m.ID] = aws.ToString(g.AutoScalingGroupName)
		o.Machines = append(o.Machines, m)
	}

	return nil
}

// newMachine returns a machine of a group.
func (r *repairer) newMachine(ctx context.Context, group string, i types.Instance) (repair.Machine, error) {
	m := repair.Machine{
		ID:    aws.ToString(i.InstanceId),
		Group: group,
		Zone:  aws.ToString(i.AvailabilityZone),
		State: repair.Leaving,
	}
	n, hasNode := r.nodes[m.ID]

	switch lifecycle := string(i.LifecycleState); {
	case strings.HasPrefix(lifecycle, "Pending"), lifecycle == "InService" && !hasNode:
		m.State = repair.Starting
	case lifecycle == "InService":
		m.State = repair.Running
	}

	m.Ready, m.Since = n.ready()
	m.Began = n.began()
	if m.State != repair.Running || m.Began.IsZero() || m.Ready {
		return m, nil
	}

	left, err := r.drainOf(n).countEvictable(ctx)
	m.Evicted = err == nil && left == 0

	return m, err
}

// drainOf returns the drain of a node.
func (r *repairer) drainOf(n repairNode) nodeDrain {
	return nodeDrain{api: r.api, node: n.Metadata.Name, now: r.agent.Now}
}

// act does one action.
func (r *repairer) act(ctx context.Context, a repair.Action) error {
	n := r.nodes[a.Machine]
	log := r.agent.Log.With(slog.String("node", n.Metadata.Name), slog.String("instance", a.Machine))
	switch a.Kind {
	case repair.Begin:
		log.Info("repairing a worker", slog.String("reason", a.Reason))
		r.drainOf(n).record(ctx, "RepairBegan", "replacing machine "+a.Machine+": "+a.Reason)

		value := r.agent.Now().UTC().Format(time.RFC3339)
		if n.Spec.Unschedulable {
			value += cordonedBefore
		}

		return r.patch(ctx, n, value, true)

	case repair.Evict:
		_, err := r.drainOf(n).evictOnce(ctx)
		return err

	case repair.Terminate:
		log.Info("terminating a worker", slog.String("reason", a.Reason))
		r.drainOf(n).record(ctx, "RepairTerminates", "terminating machine "+a.Machine+": "+a.Reason)

		return r.terminate(ctx, a.Machine)

	case repair.Cancel:
		log.Info("not repairing a worker any more", slog.String("reason", a.Reason))
		r.drainOf(n).record(ctx, "RepairCancelled", "machine "+a.Machine+" stays: "+a.Reason)

		return r.patch(ctx, n, nil, n.isCordonedByOthers())
	}

	return nil
}

// patch records the repair of a node, or removes the record if value is nil.
func (r *repairer) patch(ctx context.Context, n repairNode, value any, unschedulable bool) error {
	return r.api.MergePatch(ctx, "/api/v1/nodes/"+n.Metadata.Name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{repairAnnotation: value}},
		"spec":     map[string]any{"unschedulable": unschedulable},
	})
}

// terminate terminates a machine, whose group launches another one. The machine is drained as far as possible, so that
// Auto Scaling need not wait for its agent.
func (r *repairer) terminate(ctx context.Context, instance string) error {
	_, err := r.scaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId:                     &instance,
		ShouldDecrementDesiredCapacity: aws.Bool(false),
	})
	if err != nil {
		return fmt.Errorf("terminate machine %s: %w", instance, err)
	}

	_, err = groupHook{
		api:      r.scaling,
		name:     node.TerminationHook,
		group:    r.groups[instance],
		instance: instance,
	}.complete(ctx)

	return err
}

// reportDecision sets the condition that 'slipway validate' shows.
func (r *repairer) reportDecision(d repair.Decision) {
	var causes []string
	for _, h := range d.Held {
		causes = append(causes, fmt.Sprintf("machine %s is not replaced: %s", h.Machine, h.Reason))
	}

	for _, a := range d.Actions {
		if a.Kind != repair.Cancel {
			causes = append(causes, fmt.Sprintf("machine %s is being replaced", a.Machine))
		}
	}

	if len(causes) == 0 {
		r.agent.conditions.Clear(report.Repair)
		return
	}

	r.agent.conditions.Set(report.Condition{
		Component: report.Repair,
		State:     report.Warning,
		Cause:     strings.Join(causes, "; "),
		Next:      "slipway validate cluster shows the nodes that are not Ready; spec.repair of their group sets the limits",
	}, r.agent.Now())
}
