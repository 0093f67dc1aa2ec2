// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/cluster/validate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Status is the state of a cluster's etcd.
type Status struct {
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// Quorum means that a member answered a linearizable read just now.
	Quorum bool `json:"quorum"`
	// Members of all slots, in their order.
	Members []Member `json:"members"`
	// Newest is the newest backup, and Tested the newest one that was restored as a test; omitted if there is none.
	Newest *backup.Backup `json:"newestBackup,omitempty"`
	Tested *backup.Backup `json:"testedBackup,omitempty"`
	// Unreadable are backups newer than Tested that cannot be read; omitted if there are none.
	Unreadable []backup.Unreadable `json:"unreadableBackups,omitempty"`
	// Recovery is what the machines do about a missing quorum, and what the newest recovery lost; omitted if neither applies.
	Recovery string `json:"recovery,omitempty"`
	// APIError says why the Kubernetes API did not answer. The members are then as the consoles say.
	APIError string `json:"apiError,omitempty"`
}

// Member is the etcd member of one slot.
type Member struct {
	// Slot of the control plane, and the member's name.
	Slot string `json:"slot"`
	Name string `json:"name"`
	// Machine is the EC2 instance id; empty if none is running.
	Machine string `json:"machine,omitempty"`
	// MemberID in hex; empty if the member has not reported.
	MemberID string `json:"memberID,omitempty"`
	// Role is leader, voter, learner or unknown.
	Role string `json:"role"`
	// Healthy means that it answered a linearizable read.
	Healthy bool `json:"healthy"`
	// Version of etcd.
	Version string `json:"version,omitempty"`
	// RaftIndex is the last index of its log.
	RaftIndex uint64 `json:"raftIndex,omitempty"`
	// DBSize and Quota of its database in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	Quota  int64 `json:"quota,omitempty"`
	// Alarms that are raised.
	Alarms []string `json:"alarms,omitempty"`
	// Problem says why it is not healthy.
	Problem string `json:"problem,omitempty"`
	// ReportedAt is when its machine reported last.
	ReportedAt time.Time `json:"reportedAt,omitzero"`

	// volumeSize is the size of the etcd volume's file system in bytes; 0 if it is not known.
	volumeSize int64
	// rootDisk is the root disk of its machine; its size is 0 if it is not known.
	rootDisk report.Disk
}

// Status reads the reports of the machines and the newest backups.
func (a *Admin) Status(ctx context.Context) (Status, error) {
	facts, err := validate.ReadFacts(ctx, a.env, a.name)
	if err != nil {
		return Status{}, err
	}

	out := Status{Cluster: a.name, APIError: facts.APIError, Members: membersOf(facts)}
	for _, m := range out.Members {
		out.Quorum = out.Quorum || m.Healthy
	}

	for _, c := range health.Evaluate(facts).Checks {
		if c.Kind == health.KindEtcd && c.Name == health.RecoveryName {
			out.Recovery = c.Cause
		}
	}

	policy, err := backup.NewPolicy(a.set.Cluster.Spec.Etcd.Backup)
	if err != nil {
		return out, err
	}

	newest, err := (&backup.Catalog{Archive: a.archive}).ReadNewest(ctx, a.env.Now(), policy)
	out.Newest = newest.Taken
	out.Unreadable = newest.Unreadable
	out.Tested = newest.Tested

	return out, err
}

// membersOf returns the member of each slot. One that works is healthy, also with a warning, such as of a slow disk.
func membersOf(f health.Facts) []Member {
	problems := map[string]health.Check{}
	for _, c := range health.Evaluate(f).Checks {
		if c.Kind == health.KindEtcd && c.Severity != health.OK {
			problems[c.Name] = c
		}
	}

	var out []Member
	for _, g := range f.Groups {
		if g.Slot == "" {
			continue
		}

		m := Member{Slot: g.Slot, Name: "etcd-" + g.Slot, Role: "unknown"}
		problem, hasProblem := problems[m.Name]
		m.Problem = problem.Cause
		for _, i := range f.Instances {
			if i.Slot == g.Slot && i.State == "running" {
				m.Machine = i.ID
				m.fill(f.Reports[i.ID])
			}
		}

		m.Healthy = m.Healthy && (!hasProblem || problem.OK)
		out = append(out, m)
	}

	markLeader(out, newestLeader(f))

	return out
}

// newestLeader returns the id of the leader that the newest report names; empty if none does. Machines report at different
// times: after a change of the leader, none or two of them take themselves for it.
func newestLeader(f health.Facts) string {
	var leader string
	var at time.Time
	for _, r := range f.Reports {
		if r.Etcd != nil && r.Etcd.LeaderID != "" && r.PublishedAt.After(at) {
			leader = r.Etcd.LeaderID
			at = r.PublishedAt
		}
	}

	return leader
}

// markLeader gives the role of the leader to the member with an id, if there is one, and takes it from all others.
func markLeader(members []Member, leader string) {
	if leader == "" || !slices.ContainsFunc(members, func(m Member) bool { return m.MemberID == leader }) {
		return
	}

	for i := range members {
		m := &members[i]

		switch {
		case m.MemberID == leader && m.Role == "voter":
			m.Role = "leader"
		case m.MemberID != leader && m.Role == "leader":
			m.Role = "voter"
		}
	}
}

// fill sets what the machine reports.
func (m *Member) fill(r health.MachineReport) {
	if r.Etcd == nil {
		return
	}

	m.MemberID = r.Etcd.MemberID
	m.Version = r.Etcd.Version
	m.RaftIndex = r.Etcd.RaftIndex
	m.DBSize = r.Etcd.DBSize
	m.Quota = r.Etcd.Quota
	m.Alarms = r.Etcd.Alarms
	m.ReportedAt = r.PublishedAt
	m.Healthy = r.Etcd.Quorum
	for _, d := range r.Disks {
		switch {
		case d.Error != "":
		case d.Path == etcd.DataMount:
			m.volumeSize = d.SizeBytes
		case d.Path == "/":
			m.rootDisk = d
		}
	}

	switch {
	case r.Etcd.Error != "":
		m.Role = "unknown"
	case r.Etcd.Learner:
		m.Role = "learner"
	case r.Etcd.Leader():
		m.Role = "leader"
	default:
		m.Role = "voter"
	}
}

// DefragOrder returns the members in the order in which they are defragmented: the leader is the last one. It returns an
// error if a member is not healthy.
func DefragOrder(s Status) ([]Member, error) {
	out := slices.Clone(s.Members)
	for _, m := range out {
		if !m.Healthy {
			return nil, diag.WithHint(
				fmt.Errorf(
					"member %s is not healthy: %s",
					m.Name,
					cmp.Or(m.Problem, "it has not reported"),
				),
				"see: slipway validate cluster "+s.Cluster,
			)
		}
	}

	slices.SortStableFunc(out, func(a, b Member) int {
		return cmp.Or(isLeader(a)-isLeader(b), strings.Compare(a.Slot, b.Slot))
	})

	return out, nil
}

func isLeader(m Member) int {
	if m.Role == "leader" {
		return 1
	}

	return 0
}
