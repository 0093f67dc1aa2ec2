// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/repair"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// peerAnnotation of the Lease of the repair is the machine of the control plane that was reported last, a space, and
// the time.
const peerAnnotation = "slipway.dev/reported-peer"

// peerRepair reports a machine of the control plane that runs but does not work to Auto Scaling, which replaces it. The
// elected machine does it for the others.
type peerRepair struct {
	agent *Agent
	api   kube.Client
	// members returns the etcd members; nil while no member answers with a quorum.
	members func(context.Context) []etcd.Member
	// lock returns the update lock of the control plane.
	lock func(context.Context) (follow.Lock, error)
	// problems are those of the slots, as they were seen last.
	problems map[string]peerProblem
}

// peerProblem is why the machine of a slot does not work, and since when this machine sees it.
type peerProblem struct {
	cause string
	since time.Time
}

func newPeerRepair(a *Agent, api kube.Client) *peerRepair {
	return &peerRepair{
		agent:   a,
		api:     api,
		members: func(ctx context.Context) []etcd.Member { return a.newEtcdManager().Members(ctx, "") },
		lock: func(ctx context.Context) (follow.Lock, error) {
			lock, _, err := newUpdateLock(a).read(ctx)
			return lock, err
		},
	}
}

// isFitToRepair reports whether this machine works itself. One that does not leaves the election to another one, which
// may report it.
func isFitToRepair(a *Agent) bool {
	needed := []report.Component{report.Kubelet, report.Containerd, report.DiskSpace, report.EtcdMember, report.EtcdVolume}
	for _, c := range a.conditions.Conditions() {
		if c.State == report.Failed && slices.Contains(needed, c.Component) {
			return false
		}
	}

	return true
}

// run reports at most one machine. It calls Auto Scaling, which has the policy, only while a machine does not work for a
// while, and other services only while it may be replaced.
func (p *peerRepair) run(ctx context.Context, nodes []repairNode) error {
	a := p.agent
	if len(a.doc.Slots) < 2 {
		return nil
	}

	machines, err := a.machines.listRecent(ctx, a.ec2Client(), a.Now())
	if err != nil {
		return err
	}

	members := p.members(ctx)
	p.noteProblems(nodes, machines, members)
	if !p.isAnyDue(repair.MinPeerPatience) {
		a.conditions.Clear(report.PeerRepair)
		return nil
	}

	groups, err := p.listGroups(ctx)
	if err != nil {
		return err
	}

	policy, err := policyOfPeers(groups)
	if err != nil {
		return err
	}

	if policy.Disabled || !p.isAnyDue(policy.NotReadyFor) {
		a.conditions.Clear(report.PeerRepair)
		return nil
	}

	o, err := p.observe(ctx, members, groups)
	if err != nil {
		return err
	}

	o.Policy = policy

	lease, err := p.readLease(ctx)
	if err != nil {
		return err
	}

	o.LastID, o.LastAt = lease.reported()
	d := repair.DecidePeer(o)
	p.reportDecision(d)
	if d.Report == "" || lease.Spec.HolderIdentity != a.instance.ID {
		return nil
	}

	return p.report(ctx, lease, d)
}

// noteProblems notes which machines do not work. A problem begins when this machine sees it first, so that clocks of
// machines are not compared.
func (p *peerRepair) noteProblems(nodes []repairNode, machines []Machine, members []etcd.Member) {
	now := p.agent.Now()
	before := p.problems
	p.problems = map[string]peerProblem{}
	for _, slot := range slotNames(p.agent) {
		cause := findPeerProblem(slotNode(slot, nodes, machines), slot, members, now)
		if cause == "" {
			continue
		}

		since := now
		if earlier, ok := before[slot]; ok {
			since = earlier.since
		}

		p.problems[slot] = peerProblem{cause: cause, since: since}
	}
}

// isAnyDue reports whether a machine does not work for so long.
func (p *peerRepair) isAnyDue(patience time.Duration) bool {
	for _, problem := range p.problems {
		if p.agent.Now().Sub(problem.since) >= patience {
			return true
		}
	}

	return false
}

// slotNode returns the node of the newest machine of a slot; nil for none. A kubelet cannot choose the name of its node.
func slotNode(slot string, nodes []repairNode, machines []Machine) *repairNode {
	var out *repairNode
	for _, m := range machines {
		at := slices.IndexFunc(nodes, func(n repairNode) bool { return strings.EqualFold(n.Metadata.Name, m.Name) })
		if m.Slot == slot && m.Role == node.RoleTagControlPlane && !m.isTerminated() && at >= 0 {
			out = &nodes[at]
		}
	}

	return out
}

// findPeerProblem returns why the machine of a slot does not work and needs to be replaced; empty if it works, if that is
// not known, or if a new machine would not work either.
func findPeerProblem(n *repairNode, slot string, members []etcd.Member, now time.Time) string {
	r := reportOf(n, now)
	if n != nil {
		if ready, _ := n.ready(); !ready {
			return "its node is not Ready"
		}
	}

	for _, d := range r.Disks {
		switch {
		case d.Path != etcd.DataMount && d.Fails():
			return "its disk " + d.Path + " is full or does not work"
		case d.Path == etcd.DataMount && d.Error == "" && d.Fails():
			return "" // the next machine would have the same volume
		}
	}

	return findMemberProblem(slot, members)
}

// findMemberProblem returns why the etcd member of a slot does not work; empty if it works or if that is not known.
func findMemberProblem(slot string, members []etcd.Member) string {
	at := slices.IndexFunc(members, func(m etcd.Member) bool { return m.Slot == slot })
	switch {
	case len(members) == 0: // without a quorum nothing is known
		return ""
	case at < 0 && slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Learner }):
		return "" // members join one at a time
	case at < 0:
		return "etcd has no member of its slot"
	case !members[at].Healthy && !members[at].Learner:
		return "its etcd member does not answer"
	}

	return ""
}

// reportOf returns the report of a node's agent; the zero value if there is none, or if it is too old to be true.
func reportOf(n *repairNode, now time.Time) report.Report {
	var r report.Report
	if n == nil || json.Unmarshal([]byte(n.Metadata.Annotations[report.Annotation]), &r) != nil ||
		now.Sub(r.Time) > 2*report.WorkerRefresh {
		return report.Report{}
	}

	return r
}

// policyOfPeers returns the policy of a control plane with these Auto Scaling groups.
func policyOfPeers(groups map[string]types.AutoScalingGroup) (repair.PeerPolicy, error) {
	out := repair.PeerPolicy{}
	for _, slot := range slices.Sorted(maps.Keys(groups)) {
		g := groups[slot]
		p, err := repair.ParsePeerPolicy(groupTags(g)[tagRepair])
		if err != nil {
			return out, fmt.Errorf("read tag %s of auto scaling group %s: %w", tagRepair, aws.ToString(g.AutoScalingGroupName), err)
		}

		out = out.Stricter(p)
	}

	if len(groups) == 0 {
		return repair.DefaultPeerPolicy(), nil
	}

	return out, nil
}

// observe returns what the decision depends on, except for the last report.
func (p *peerRepair) observe(
	ctx context.Context,
	members []etcd.Member,
	groups map[string]types.AutoScalingGroup,
) (repair.PeerObservation, error) {
	a := p.agent
	o := repair.PeerObservation{Now: a.Now(), Self: a.instance.ID}
	lock, err := p.lock(ctx)
	if err != nil {
		return o, fmt.Errorf("read the update lock of the control plane: %w", err)
	}

	if lock.IsHeldByOther("", a.Now()) {
		o.Busy = "the control plane is being changed: its update lock is held by " + lock.Holder
	}

	machines, err := a.machines.listNow(ctx, a.ec2Client(), a.Now())
	if err != nil {
		return o, err
	}

	for _, slot := range slotNames(a) {
		peer := newPeer(groups[slot])
		peer.Slot = slot
		peer.Problem = p.problems[slot].cause
		peer.Since = p.problems[slot].since
		peer.Votes = slices.ContainsFunc(members, func(m etcd.Member) bool {
			return m.Slot == slot && m.Healthy && !m.Learner
		})
		for _, m := range machines {
			if m.ID == peer.ID {
				peer.Launched = m.Launched
			}
		}

		o.Peers = append(o.Peers, peer)
	}

	return o, nil
}

// listGroups returns the Auto Scaling groups of the control plane by slot.
func (p *peerRepair) listGroups(ctx context.Context) (map[string]types.AutoScalingGroup, error) {
	doc := p.agent.doc
	out := map[string]types.AutoScalingGroup{}
	in := &autoscaling.DescribeAutoScalingGroupsInput{Filters: []types.Filter{
		{Name: aws.String("tag:" + tagCluster), Values: []string{doc.Cluster}},
		{Name: aws.String("tag:" + tagRole), Values: []string{node.RoleTagControlPlane}},
	}}
	for pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(p.agent.Scaling, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the auto scaling groups of the control plane of cluster %s: %w", doc.Cluster, err)
		}

		for _, g := range page.AutoScalingGroups {
			tags := groupTags(g)
			isOurs := tags[tagClusterID] == "" || doc.ClusterID == "" || tags[tagClusterID] == doc.ClusterID
			if tags[tagRole] == node.RoleTagControlPlane && isOurs {
				out[tags[tagSlot]] = g
			}
		}
	}

	return out, nil
}

// newPeer returns what an Auto Scaling group tells of its machine.
func newPeer(g types.AutoScalingGroup) repair.Peer {
	out := repair.Peer{State: repair.Starting}
	out.Suspended = slices.ContainsFunc(g.SuspendedProcesses, func(s types.SuspendedProcess) bool {
		return aws.ToString(s.ProcessName) == "ReplaceUnhealthy" || aws.ToString(s.ProcessName) == "Terminate"
	})
	if len(g.Instances) != 1 {
		return out
	}

	i := g.Instances[0]
	out.ID = aws.ToString(i.InstanceId)
	out.Reported = aws.ToString(i.HealthStatus) == "Unhealthy"
	if i.LifecycleState == types.LifecycleStateInService {
		out.State = repair.Running
	}

	return out
}

// peerLease holds the fields of the Lease of the repair that are needed to report a machine.
type peerLease struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
}

// reported returns the machine that was reported last, and when.
func (l peerLease) reported() (string, time.Time) {
	id, text, _ := strings.Cut(l.Metadata.Annotations[peerAnnotation], " ")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "", time.Time{}
	}

	return id, at
}

func (p *peerRepair) readLease(ctx context.Context) (peerLease, error) {
	var out peerLease
	if err := p.api.Get(ctx, leasesPath+"/"+repairLeaseName, &out); err != nil {
		return out, fmt.Errorf("read lease %s: %w", repairLeaseName, err)
	}

	return out, nil
}

// report records in the lease that a machine is reported, and reports it. The record is refused if somebody else has
// changed the lease, so that only one machine acts. If this machine ends between the two steps, the next one reports
// the same machine.
func (p *peerRepair) report(ctx context.Context, lease peerLease, d repair.PeerDecision) error {
	a := p.agent
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": lease.Metadata.ResourceVersion,
		"annotations":     map[string]string{peerAnnotation: d.Report + " " + a.Now().UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return fmt.Errorf("encode the record of machine %s: %w", d.Report, err)
	}

	path := leasesPath + "/" + repairLeaseName
	_, err = p.api.Do(ctx, http.MethodPatch, path, "application/merge-patch+json", body)
	if errors.Is(err, kube.ErrConflict) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("record that machine %s is reported as unhealthy: %w", d.Report, err)
	}

	a.Log.Warn("reporting a control-plane machine as unhealthy", slog.String("instance", d.Report), slog.String("reason", d.Reason))
	_, err = a.Scaling.SetInstanceHealth(ctx, &autoscaling.SetInstanceHealthInput{
		InstanceId:               &d.Report,
		HealthStatus:             aws.String("Unhealthy"),
		ShouldRespectGracePeriod: aws.Bool(true),
	})
	if err != nil {
		return fmt.Errorf("report machine %s as unhealthy: %w", d.Report, err)
	}

	return nil
}

// reportDecision sets the condition that 'slipway validate' shows.
func (p *peerRepair) reportDecision(d repair.PeerDecision) {
	var causes []string
	if d.Report != "" {
		causes = append(causes, fmt.Sprintf("machine %s is being replaced: %s", d.Report, d.Reason))
	}

	for _, h := range d.Held {
		causes = append(causes, fmt.Sprintf("machine %s is not replaced: %s", h.Machine, h.Reason))
	}

	if len(causes) == 0 {
		p.agent.conditions.Clear(report.PeerRepair)
		return
	}

	p.agent.conditions.Set(report.Condition{
		Component: report.PeerRepair,
		State:     report.Warning,
		Cause:     strings.Join(causes, "; "),
		Next:      "wait, or terminate the machine if the others have a quorum: its group replaces it",
	}, p.agent.Now())
}
