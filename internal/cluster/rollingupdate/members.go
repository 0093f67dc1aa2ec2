// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// reportAge is the maximal age of the report of a control-plane machine. Agents report every 5 s.
const reportAge = 30 * time.Second

// etcdLeasePrefix begins the names of the leases with the reports of control-plane machines, in kube-system.
const etcdLeasePrefix = "slipway-etcd-"

// memberFacts is what the leases of control-plane machines show.
type memberFacts struct {
	// reports are the recent reports of etcd members.
	reports []memberReport
	// prepared is the slot for which a machine has prepared, by instance id.
	prepared map[string]string
	// missing is how long the member was missing when the slot was handed over to the machine, by instance id.
	missing map[string]time.Duration
	// lock by which the machines take turns to restart components.
	lock follow.Lock
}

// memberReport is what the machine of a slot reports of the etcd members.
type memberReport struct {
	machine, slot string
	etcd          report.Etcd
}

// votes reports whether the member votes and has a quorum.
func (r memberReport) votes() bool { return r.etcd.Quorum && !r.etcd.Learner }

// readLeases reads the recent reports of control-plane machines.
func (o observer) readLeases(ctx context.Context) (memberFacts, error) {
	out := memberFacts{prepared: map[string]string{}, missing: map[string]time.Duration{}}
	leases, err := o.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("list leases: %w", err)
	}

	for _, l := range leases.Items {
		if l.Name == follow.ControlPlaneLease {
			out.lock = parseLock(&l)
		}

		if l.Spec.RenewTime != nil && o.now().Sub(l.Spec.RenewTime.Time) <= reportAge {
			out.add(l)
		}
	}

	return out, nil
}

// add adds what a recent Lease shows.
func (f *memberFacts) add(l coordinationv1.Lease) {
	prepared, isStandby := strings.CutPrefix(l.Name, report.StandbyLeasePrefix)
	if isStandby && l.Spec.HolderIdentity != nil {
		f.prepared[*l.Spec.HolderIdentity] = prepared
	}

	var r report.Report
	slot, isMember := strings.CutPrefix(l.Name, etcdLeasePrefix)
	if !isMember || json.Unmarshal([]byte(l.Annotations[report.Annotation]), &r) != nil || r.Etcd == nil {
		return // an agent of another version: nothing is known
	}

	f.reports = append(f.reports, memberReport{machine: r.Machine, slot: slot, etcd: *r.Etcd})
	if r.HandOver != nil && r.HandOver.To == r.Machine {
		f.missing[r.Machine] = time.Duration(r.HandOver.MissingSeconds * float64(time.Second))
	}
}

// stateOf returns what is known of the member of a machine. It is healthy only if its own report says so and no other
// member that votes misses it: the report of a machine that lost its power stays for 30 s. It is lost only if its own recent
// report says so, or those of others, and if no other member that votes reaches it: an agent that hangs says nothing of its
// member.
func (f *memberFacts) stateOf(machine, slot string) rollout.MemberState {
	reached, missed := f.peersOf(slot)
	isLost := missed
	if own := slices.IndexFunc(f.reports, func(r memberReport) bool { return r.machine == machine }); own >= 0 {
		switch r := f.reports[own]; {
		case r.votes() && !missed:
			return rollout.MemberHealthy
		case r.votes(), r.etcd.Learner:
			return rollout.MemberUnknown
		}

		isLost = true
	}

	if isLost && !reached {
		return rollout.MemberLost
	}

	return rollout.MemberUnknown
}

// peersOf reports whether another member that votes reaches the member of a slot, and whether one misses it.
func (f *memberFacts) peersOf(slot string) (reached, missed bool) {
	for _, r := range f.reports {
		i := slices.IndexFunc(r.etcd.Peers, func(p report.Peer) bool { return p.Slot == slot })
		if i < 0 || r.slot == slot || !r.votes() {
			continue
		}

		if r.etcd.Peers[i].Error == "" {
			reached = true
		} else {
			missed = true
		}
	}

	return reached, missed
}

// alarms returns the alarms of etcd, which are those of the whole cluster, sorted.
func (f *memberFacts) alarms() []string {
	var out []string
	for _, r := range f.reports {
		out = append(out, r.etcd.Alarms...)
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// clusterClock is the clock of the cluster's API servers, which is that of its machines. The operator's may differ.
type clusterClock struct {
	local func() time.Time

	mu     sync.Mutex
	offset time.Duration
}

// maxUnnoticed is the difference of two clocks up to which they are the same: the header Date has whole seconds.
const maxUnnoticed = 2 * time.Second

// observe reads the time from an answer of the API.
func (c *clusterClock) observe(resp *http.Response) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}

	offset := date.Sub(c.local())
	if offset.Abs() <= maxUnnoticed {
		offset = 0
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

// now returns the cluster's time; the operator's as long as the API has not answered.
func (c *clusterClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.local().Add(c.offset)
}
