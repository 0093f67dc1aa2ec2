// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// quorumName is the name of the check of etcd as a whole.
const quorumName = "quorum"

// memberName returns the name of the member of a slot.
func memberName(slot string) string { return "etcd-" + slot }

// memberCount counts the members of a cluster.
type memberCount struct {
	all     int
	working int
	// starting are those that do not work because their machine is still booting.
	starting int
	// failed describes those that do not work.
	failed []string
}

// isStarting reports whether the machines of all members that do not work are still booting.
func (n memberCount) isStarting() bool { return n.starting == len(n.failed) }

// checkEtcd checks every member and whether enough of them work. Without the API and without a report on a
// console, it says nothing of a member whose machine runs.
func checkEtcd(f Facts) []Check {
	var out []Check
	count := memberCount{}
	for _, g := range f.slots() {
		count.all++
		c, known := checkMember(f, g)
		if !known {
			count.working++ // no proof of the contrary
			continue
		}

		out = append(out, c)
		if c.Severity != Failed {
			count.working++
			continue
		}

		count.failed = append(count.failed, c.Name+" ("+firstClause(c.Cause)+")")
		if i, _ := f.machineOfSlot(g); isBooting(i) {
			count.starting++
		}
	}

	if c, ok := checkQuorum(f, count); ok {
		out = append(out, c)
	}

	out = append(out, checkDatabase(f)...)
	out = append(out, checkRecovery(f)...)

	return append(out, checkBackups(f)...)
}

// checkDatabase returns a critical check if the database is full, or if the data of members differs. The alarm holds for the
// whole cluster: no member accepts writes, and all of them work.
func checkDatabase(f Facts) []Check {
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		if fresh && i.State == "running" && refusesWrites(r) {
			condition, _ := r.Condition(report.EtcdMember)
			c := conditionCheck(KindEtcd, "database", Instance{}, condition)
			c.Severity = Critical
			return []Check{c}
		}
	}

	return nil
}

// refusesWrites reports whether an alarm makes etcd refuse writes.
func refusesWrites(r MachineReport) bool {
	return r.Etcd != nil && (slices.Contains(r.Etcd.Alarms, "NOSPACE") || slices.Contains(r.Etcd.Alarms, "CORRUPT"))
}

// isBooting reports whether a machine has not finished its boot, without a failure so far.
func isBooting(i Instance) bool {
	last, failed := lastReport(i)
	return i.State == "pending" || i.State == "running" && !failed && last.Stage != "" && last.Stage != "ready"
}

// checkQuorum checks that more than half of the members work, and warns if no other one may fail.
func checkQuorum(f Facts, n memberCount) (Check, bool) {
	c := Check{Kind: KindEtcd, Name: quorumName}
	needed := n.all/2 + 1
	failed := strings.Join(n.failed, ", ")

	switch {
	case n.all == 0 || f.APIError != "" && len(n.failed) == 0:
		return c, false
	case n.working < needed && n.isStarting() && !someoneHasQuorum(f) && !hasHadQuorum(f):
		c.Severity = Critical
		c.Cause = fmt.Sprintf("no quorum yet: %d of %d members have not started: %s", len(n.failed), n.all, failed)
		c.Hint = "wait (--wait 10m): members start when their machines have booted"

	case n.working < needed && !someoneHasQuorum(f):
		c.Severity = Critical
		c.Cause = fmt.Sprintf("quorum lost: %d of %d members do not work: %s", len(n.failed), n.all, failed)
		c.Hint = lostQuorumHint(f, n)

	case n.working <= needed && len(n.failed) > 0:
		c.Severity = Warning
		c.Cause = fmt.Sprintf("no other member may fail: %d of %d work", max(n.working, needed), n.all)
		c.Hint = "fix the member that does not work before you change or replace any other machine"
	}

	return c, true
}

// lostQuorumHint returns what to do about a lost quorum.
func lostQuorumHint(f Facts, n memberCount) string {
	if _, isDataLost := chooseQuorumLoss(f); isDataLost {
		return "the members that are left cannot have a quorum again: see etcd recovery"
	}

	if n.isStarting() {
		return "wait (--wait 10m): their machines are booting. Their data is on their volumes: do not delete any"
	}

	return fmt.Sprintf("bring back %d of them: nothing can be written until then. Their data is on their volumes: do not delete any",
		n.all/2+1-n.working)
}

// hasHadQuorum reports whether etcd has worked before: a backup of it or a node exists.
func hasHadQuorum(f Facts) bool {
	return f.Backups != nil && (f.Backups.Newest != nil || f.Backups.Future != nil) || len(f.Nodes) > 0
}

// someoneHasQuorum reports whether a member has answered a linearizable read just now.
func someoneHasQuorum(f Facts) bool {
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		if fresh && i.State == "running" && !r.FromConsole && r.Etcd != nil && r.Etcd.Quorum {
			return true
		}
	}

	return false
}

// checkMember checks the member of a slot. It reports false if nothing is known of it.
func checkMember(f Facts, g Group) (Check, bool) {
	c := Check{Kind: KindEtcd, Name: memberName(g.Slot)}
	i, running := f.machineOfSlot(g)
	c.Machine = i.ID
	r, fresh := f.freshReport(i.ID)
	peers := peersThatMiss(f, g.Slot)
	fail := func(cause, hint string) (Check, bool) {
		c.Severity = Failed
		c.Cause = cause
		c.Hint = hint
		return c, true
	}

	switch {
	case !running && i.ID != "":
		return fail("its machine "+i.ID+" is "+i.State, "")
	case !running:
		return fail("its machine is not running", "")
	case fresh && r.Etcd != nil:
		return reportedMember(f, i, r, peers)
	case len(peers) > 0:
		return fail(peers[0], "see its machine "+i.ID)
	case r.Machine != "" && answersPeers(f, g.Slot):
		return c, true // only the agent is silent
	case r.Machine != "":
		return fail("its machine has not reported for "+formatAge(f.Now.Sub(r.PublishedAt)), "see its machine "+i.ID)
	case f.APIError != "":
		return bootingMember(c, i)
	}

	return legacyMember(f, g, c), true
}

// reportedMember checks a member whose own machine reports it.
func reportedMember(f Facts, i Instance, r MachineReport, peers []string) (Check, bool) {
	condition, _ := r.Condition(report.EtcdMember)
	if condition.State == "" {
		condition.State = report.OK // a shortened report lists only what is not OK
	}

	c := conditionCheck(KindEtcd, "etcd-"+i.Slot, i, condition)
	switch {
	case r.Etcd.Error == "" && !r.Etcd.Quorum:
		return memberWithoutQuorum(f, c, r, peers), true
	case refusesWrites(r):
		return Check{Kind: KindEtcd, Name: memberName(i.Slot), Machine: i.ID}, true // see checkDatabase
	case r.Etcd.Learner:
		c.Severity = Failed // it does not vote: the cluster tolerates fewer failures than it should
	case condition.State == report.OK && len(peers) > 0:
		c.Severity = Failed
		c.Cause = peers[0]
		c.Since = time.Time{} // the condition says since when the member has been in order
		c.Hint = "wait 10 s: if it has stopped, its own machine reports that; if not, check the network of machine " + i.ID +
			": ports 2379 and 2380 between the control-plane machines"
	case condition.State == report.OK && f.APIError != "":
		c.Cause = workingMemberText(r)
	}

	return c, true
}

// workingMemberText says what a member that works does, for a report without the API, which lists every member.
func workingMemberText(r MachineReport) string {
	if r.Etcd.MemberID != "" && r.Etcd.MemberID == r.Etcd.LeaderID {
		return "works and is the leader"
	}

	return "works"
}

// memberWithoutQuorum completes the check c of a member that runs and has no quorum.
func memberWithoutQuorum(f Facts, c Check, r MachineReport, peers []string) Check {
	elsewhere := someoneHasQuorum(f)

	switch {
	case elsewhere && len(peers) == 0 && reachesAllPeers(r):
		c.Hint = "wait (--wait 1m): a member that has just started follows the leader within seconds"
	case elsewhere || len(peers) > 0:
		c.Cause = "is cut off from the other members: " + c.Cause
		c.Hint = "check the network of machine " + c.Machine + ": ports 2379 and 2380 between the control-plane machines"
	default:
		// The member itself works; what is missing are others. The quorum's check reports that.
		c.Severity = Warning
		c.Cause = "runs without a quorum"
		c.Hint = ""
	}

	return c
}

// reachesAllPeers reports whether a member is connected with all others.
func reachesAllPeers(r MachineReport) bool {
	return !slices.ContainsFunc(r.Etcd.Peers, func(p report.Peer) bool { return p.Error != "" })
}

// peersThatMiss returns what other machines, which have a quorum, say of a member that does not answer them.
func peersThatMiss(f Facts, slot string) []string {
	var out []string
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		if !fresh || i.State != "running" || r.Etcd == nil || r.Etcd.Error != "" || i.Slot == slot {
			continue
		}

		at := slices.IndexFunc(r.Etcd.Peers, func(p report.Peer) bool { return p.Slot == slot })
		trusted := r.Etcd.Quorum || !someoneHasQuorum(f) // not one that is cut off itself
		if at >= 0 && r.Etcd.Peers[at].Error != "" && trusted {
			out = append(out, fmt.Sprintf("does not answer etcd-%s: %s", i.Slot, r.Etcd.Peers[at].Error))
		}
	}

	return out
}

// answersPeers reports whether a member with a quorum reached the member of a slot just now.
func answersPeers(f Facts, slot string) bool {
	for _, i := range f.Instances {
		r, fresh := f.freshReport(i.ID)
		if fresh && i.State == "running" && r.Etcd != nil && r.Etcd.Quorum && slices.Contains(r.Etcd.Peers, report.Peer{Slot: slot}) {
			return true
		}
	}

	return false
}

// bootingMember checks, without the API and without a report, how far the machine of a member has booted.
func bootingMember(c Check, i Instance) (Check, bool) {
	last, failed := lastReport(i)
	if failed || last.State == "running" && last.Stage != "ready" {
		c.Severity = Failed
		c.Cause = "its machine has not started it: " + reportText(last)
		c.Hint = last.Hint
		return c, true
	}

	return c, false
}

// legacyMember checks a member from the annotations of an agent that publishes no reports.
func legacyMember(f Facts, g Group, c Check) Check {
	at := slices.IndexFunc(f.Members, func(m Member) bool { return m.Slot == g.Slot })
	c.Severity = Failed

	switch {
	case at < 0:
		c.Cause = "has not reported yet"
	case f.Now.Sub(f.Members[at].ReportedAt) > MemberTTL:
		c.Cause = "its machine has not reported for " + formatAge(f.Now.Sub(f.Members[at].ReportedAt))
	case f.Members[at].Learner:
		c.Cause = "is a learner still catching up"
	case !f.Members[at].Healthy:
		c.Cause = f.Members[at].Reason
	default:
		c.Severity = OK
	}

	return c
}

// firstClause returns a cause up to its first colon or semicolon, for a list of causes.
func firstClause(cause string) string {
	if at := strings.IndexAny(cause, ":;"); at > 0 {
		return cause[:at]
	}

	return cause
}
