// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// publishTimeout limits one attempt to publish a report.
const publishTimeout = 2 * time.Second

// consoleGrace is how long after the agent's start the API may be unreachable without a line on the console:
// the API server of a new machine starts in this time, and the stages of the boot are on the console.
const consoleGrace = 30 * time.Second

// reportPublisher measures the machine and publishes its report. It writes little to etcd: the Lease of a
// control-plane machine at each report, and the Node, which many programs watch, only when the state of the
// machine changes and every few minutes.
type reportPublisher struct {
	agent  *Agent
	member *etcdMember // nil on workers
	// measure returns the current report.
	measure func(context.Context) report.Report
	// apis are the clients to try in order: the machine's own API server, then the load balancer.
	apis []kube.Client

	// heart sends the heartbeats of a worker; nil on the control plane.
	heart *heart

	started time.Time
	// onNode is the report of the Node, written at onNodeAt; zero before the first.
	onNode   report.Report
	onNodeAt time.Time
	gate     report.ConsoleGate
	// consoleIsNewer is set while the console has a newer report than the API.
	consoleIsNewer bool
}

func (a *Agent) newReportPublisher(m *etcdMember) *reportPublisher {
	p := &reportPublisher{
		agent:   a,
		member:  m,
		measure: a.newMeasurer(m).measure,
		apis:    []kube.Client{a.newNodeClient()},
		started: a.Now(),
	}
	if m != nil {
		// The own API server cannot write while the own member has no quorum or does not run.
		own := a.newAdminClient()
		balanced := own
		balanced.Server = "https://" + a.Boot.API.Internal + ":" + kube.APIPort
		p.apis = []kube.Client{own, balanced}
	} else {
		p.heart = a.newHeart()
	}

	return p
}

// run publishes one report: to the API, or else to the console. It publishes nothing after ctx is done, because a
// measurement that was interrupted blames programs that work.
func (p *reportPublisher) run(ctx context.Context) error {
	r := p.measure(ctx)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("measure the machine: %w", err)
	}

	r.NextSeconds = int(p.refreshInterval().Seconds())
	r.HandOver = p.agent.handOver.took
	p.agent.metrics.noteReport(r)
	heartbeatErr := p.addHeartbeats(ctx, &r)
	err := p.publish(ctx, r)
	if ctx.Err() == nil { // an interrupted request says nothing about the API
		p.writeConsole(r, err)
	}

	if r.Etcd != nil && r.Etcd.Learner {
		p.promoteLearner(ctx)
	}

	return cmp.Or(err, heartbeatErr)
}

// addHeartbeats sends the heartbeat of a worker, or adds those that this machine has heard.
func (p *reportPublisher) addHeartbeats(ctx context.Context, r *report.Report) (err error) {
	if p.member != nil {
		now := p.agent.Now()
		r.Heard = p.agent.heartbeats.Seconds(now)
		r.ListeningSeconds = p.agent.heartbeats.ListeningSeconds(now)

		return nil
	}

	if p.heart != nil {
		r.Heartbeats, err = p.heart.beat(ctx)
	}

	return err
}

// refreshInterval is the longest time between two reports.
func (p *reportPublisher) refreshInterval() time.Duration {
	if p.member != nil {
		return report.Interval
	}

	return report.WorkerRefresh
}

// publish writes r to the API through the first client that can.
func (p *reportPublisher) publish(ctx context.Context, r report.Report) error {
	onNode := p.onNodeAt.IsZero() || !report.HaveSameState(p.onNode, r) ||
		r.Time.Sub(p.onNodeAt) >= report.WorkerRefresh
	if p.member == nil && !onNode {
		return nil
	}

	var errs []error
	for _, api := range p.apis {
		err := p.publishTo(ctx, api, r, onNode)
		if err == nil {
			return nil
		}

		errs = append(errs, err)
	}

	return newNotReadyError("publish the machine's report: %v", errors.Join(errs...))
}

// publishTo writes the Lease of a control-plane machine, and the Node if onNode is set.
func (p *reportPublisher) publishTo(ctx context.Context, api kube.Client, r report.Report, onNode bool) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the machine's report: %w", err)
	}

	if p.member != nil {
		l := lease{
			name:        "slipway-" + p.member.slot.Member,
			holder:      p.agent.instance.ID,
			annotations: leaseAnnotations(r, string(body)),
			now:         p.agent.Now(),
		}
		if err := l.applyTo(ctx, api); err != nil {
			return err
		}
	}

	if !onNode {
		return nil
	}

	err = api.StrategicMergePatch(ctx, "/api/v1/nodes/"+r.Node+"/status", nodePatch(r, string(body)))
	if errors.Is(err, kube.ErrNotFound) && p.member != nil {
		return nil // the kubelet has not registered the Node yet; the Lease has the report
	}

	if err != nil {
		return err
	}

	p.onNode = r
	p.onNodeAt = r.Time

	return nil
}

// nodePatch returns the patch of a Node with the report and its summary as a condition.
func nodePatch(r report.Report, body string) map[string]any {
	condition := map[string]string{
		"type":               report.NodeCondition,
		"status":             "True",
		"reason":             "AllComponentsWork",
		"message":            "every component of the machine works",
		"lastHeartbeatTime":  r.Time.Format(time.RFC3339),
		"lastTransitionTime": lastTransition(r).Format(time.RFC3339),
	}

	for _, c := range r.Conditions {
		if c.State == report.Failed {
			condition["status"] = "False"
			condition["reason"] = "ComponentFailed"
			condition["message"] = string(c.Component) + ": " + c.Cause

			break
		}
	}

	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{report.Annotation: body}},
		"status":   map[string]any{"conditions": []map[string]string{condition}},
	}
}

// lastTransition returns when the machine became as healthy or unhealthy as it is.
func lastTransition(r report.Report) time.Time {
	var out time.Time
	healthy := r.IsMachineHealthy()
	for _, c := range r.Conditions {
		if healthy != (c.State == report.Failed) && c.Since.After(out) {
			out = c.Since
		}
	}

	return out.UTC()
}

// leaseAnnotations returns the report and, for programs that know no reports, the state of the member.
func leaseAnnotations(r report.Report, body string) map[string]string {
	out := map[string]string{
		report.Annotation:      body,
		"slipway.dev/slot":     r.Slot,
		"slipway.dev/instance": r.Machine,
		"slipway.dev/healthy":  "true",
	}
	if r.Etcd != nil {
		out["slipway.dev/learner"] = strconv.FormatBool(r.Etcd.Learner)
		out["slipway.dev/member-id"] = r.Etcd.MemberID
		out["slipway.dev/raft-index"] = strconv.FormatUint(r.Etcd.RaftIndex, 10)
		out["slipway.dev/db-size"] = strconv.FormatInt(r.Etcd.DBSize, 10)
	}

	if c, ok := r.Condition(report.EtcdMember); ok && c.State == report.Failed {
		out["slipway.dev/healthy"] = "false"
		out["slipway.dev/reason"] = c.Cause
	}

	return out
}

// writeConsole writes r to the console if it could not be published, and once more when it could again.
func (p *reportPublisher) writeConsole(r report.Report, publishErr error) {
	if publishErr == nil && !p.consoleIsNewer {
		return
	}

	now := p.agent.Now()
	starting := p.onNodeAt.IsZero() && now.Sub(p.started) < consoleGrace
	if publishErr != nil && (starting || !p.gate.Allow(r, now)) {
		return
	}

	line, err := report.ConsoleLine(r)
	if err != nil {
		p.agent.Log.Warn("cannot encode report", slog.Any("error", err))
		return
	}

	p.agent.Report.WriteLine(line)
	p.consoleIsNewer = publishErr != nil
}

// promoteLearner asks the leader to make this machine's member a voting member.
func (p *reportPublisher) promoteLearner(ctx context.Context) {
	manager := p.agent.newEtcdManager()
	status, err := manager.Status(ctx, etcd.ClientURL)
	if err == nil && status.Learner {
		p.member.promoteLearner(ctx, manager, status)
	}
}

// kubeletHealthURL is the URL of the kubelet's health check.
const kubeletHealthURL = "http://127.0.0.1:10248/healthz"
