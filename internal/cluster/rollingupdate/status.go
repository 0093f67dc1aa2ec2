// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// journalDepth is how many operations are searched for the last rolling update.
const journalDepth = 20

// Status is the state of a cluster's machines with regard to their launch templates, and the last rolling update.
type Status struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Update is the journal's record of the last rolling update or upgrade; nil if there was none lately.
	Update *operation.Record `json:"update,omitempty"`
	// APIReady is set if the Kubernetes API answers. Without it, nothing is known of nodes.
	APIReady bool `json:"apiReady"`
	// UpToDate counts the machines that are up to date and serve.
	UpToDate int `json:"upToDate"`
	// Machines of all groups.
	Machines []MachineStatus `json:"machines"`
	// Waiting are the reasons why an update that runs now would take no further machine.
	Waiting []string `json:"waiting,omitempty"`
	// RemainingSeconds estimates how long an update will still take.
	RemainingSeconds int `json:"remainingSeconds"`
}

// MachineStatus is one machine.
type MachineStatus struct {
	// Machine is the instance id.
	Machine string `json:"machine"`
	// Node is the name of its node; empty if it has not registered.
	Node string `json:"node,omitempty"`
	// Group of the machine.
	Group string `json:"group"`
	// Slot of the control plane; empty for workers.
	Slot string `json:"slot,omitempty"`
	// Zone of the machine.
	Zone string `json:"zone,omitempty"`
	// Version of the launch template that it was launched from.
	Version string `json:"version"`
	// Step of the machine.
	Step rollout.Step `json:"step"`
	// Launched is when EC2 launched the machine.
	Launched time.Time `json:"launched"`
	// WaitingFor is what keeps the machine in its step; empty if nothing is known.
	WaitingFor string `json:"waitingFor,omitempty"`
}

// ReadStatus reads the status of a cluster. It takes no lock and changes nothing. A machine that is not Ready
// joinTimeout after its launch has failed.
func ReadStatus(ctx context.Context, env *cluster.Env, name string, joinTimeout time.Duration) (Status, error) {
	from, session, err := open(ctx, env, name, nil)
	if err != nil {
		return Status{}, err
	}

	u, err := newUpdater(ctx, session, from, Request{Name: name})
	if err != nil {
		return Status{}, err
	}

	records, err := env.Coordinator(from.state, name).ListRecords(ctx, journalDepth)
	if err != nil {
		return Status{}, err
	}

	status, err := u.status(ctx, rollout.Options{JoinTimeout: joinTimeout})
	status.Cluster = name
	for _, r := range records {
		if slices.Contains([]string{"rolling-update", "upgrade"}, r.Operation) {
			status.Update = &r
			break
		}
	}

	return status, err
}

// status observes the machines once.
func (u *updater) status(ctx context.Context, options rollout.Options) (Status, error) {
	if err := u.avoidFailed(ctx); err != nil {
		return Status{}, err
	}

	o, err := u.observer.observe(ctx)
	if err != nil {
		return Status{}, err
	}

	u.stages.addTo(ctx, u.machines, &o)
	d := rollout.Decide(o, options)
	out := Status{
		APIReady:         o.APIReady,
		Waiting:          d.Waiting,
		RemainingSeconds: int(rollout.Estimate(o, options, rollout.DefaultReplaceTime).Seconds()),
	}
	for _, s := range rollout.Steps(o, options) {
		m := s.Machine
		if s.Step == rollout.StepUpdated {
			out.UpToDate++
		}

		out.Machines = append(out.Machines, MachineStatus{
			Machine:    m.ID,
			Node:       m.NodeName,
			Group:      m.Group,
			Slot:       m.Slot,
			Zone:       m.Zone,
			Version:    m.Version,
			Step:       s.Step,
			Launched:   m.Launched,
			WaitingFor: u.describeStep(ctx, s),
		})
	}

	return out, nil
}

// describeStep returns what keeps a machine in its step.
func (u *updater) describeStep(ctx context.Context, s rollout.MachineStep) string {
	switch s.Step {
	case rollout.StepDraining:
		pods, err := drain.ListPods(ctx, u.client, s.Machine.NodeName)
		if err != nil {
			return ""
		}

		left := drain.Classify(pods)

		return fmt.Sprintf("%d pods to evict, %d terminating", len(left.Evict), len(left.Terminating))

	case rollout.StepStarting, rollout.StepFailed:
		return s.Machine.BootStage
	case rollout.StepPending, rollout.StepDetached:
		return s.Reason
	case rollout.StepHandingOver:
		return "hands over its slot to " + s.Machine.HandOverTo
	case rollout.StepStandby:
		return "is prepared and waits for its slot"
	case rollout.StepTerminating, rollout.StepUpdated:
	}

	return ""
}
