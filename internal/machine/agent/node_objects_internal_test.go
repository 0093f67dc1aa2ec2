// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

func TestParseUnixTimestamp(t *testing.T) {
	for text, want := range map[string]int64{
		"@1763700000\n":                     1763700000,
		"@1763700000.5\n":                   1763700000,
		"@1763700000\nWarning: of stderr\n": 1763700000,
		"":                                  0, // the unit has not started
		"\n":                                0,
		"1763700000":                        0,
		"n/a":                               0,
	} {
		got, ok := parseUnixTimestamp(text)
		if ok != (want != 0) || ok && got.Unix() != want {
			t.Errorf("%q is %v, %t, want %d", text, got, ok, want)
		}
	}
}

// TestNodesWithoutMachineAreRemoved: a Node is removed if no live machine has its name, whatever provider id it claims.
// A Node without a provider id stayed before, so the certificate of a terminated worker kept a ghost node.
func TestNodesWithoutMachineAreRemoved(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	machines := []Machine{
		{ID: "i-live", Name: "ip-10-80-0-5.ec2.internal", State: "running", Role: "worker"},
		{ID: "i-stopped", Name: "ip-10-80-0-6.ec2.internal", State: "stopped", Role: "worker"},
		{ID: "i-dead", State: "terminated", Role: "worker"},
		{ID: "i-dying", Name: "ip-10-80-0-8.ec2.internal", State: "shutting-down", Role: "worker"},
	}
	for name, c := range map[string]struct {
		node, provider string
		age            time.Duration
		removed        bool
	}{
		"of a live machine":                    {"ip-10-80-0-5.ec2.internal", "aws:///us-east-1a/i-live", time.Hour, false},
		"in capitals":                          {"IP-10-80-0-5.ec2.internal", "aws:///us-east-1a/i-live", time.Hour, false},
		"of a live machine, no id yet":         {"ip-10-80-0-5.ec2.internal", "", time.Hour, false},
		"of a stopped machine":                 {"ip-10-80-0-6.ec2.internal", "aws:///us-east-1a/i-stopped", time.Hour, false},
		"of a terminated machine":              {"ip-10-80-0-7.ec2.internal", "aws:///us-east-1a/i-dead", time.Minute, true},
		"of an earlier machine of the name":    {"ip-10-80-0-5.ec2.internal", "aws:///us-east-1a/i-dead", time.Minute, true},
		"of a machine that shuts down":         {"ip-10-80-0-8.ec2.internal", "aws:///us-east-1a/i-dying", time.Hour, true},
		"a ghost without an id":                {"ip-10-80-0-9.ec2.internal", "", time.Hour, true},
		"a ghost with the id of another":       {"ip-10-80-0-9.ec2.internal", "aws:///us-east-1a/i-live", time.Hour, true},
		"a name with the id of another":        {"ip-10-80-0-5.ec2.internal", "aws:///us-east-1a/i-stopped", time.Hour, true},
		"a ghost of a machine that shuts down": {"ip-10-80-0-8.ec2.internal", "", time.Hour, true},
		"new, EC2 does not list it yet":        {"ip-10-80-0-9.ec2.internal", "aws:///us-east-1a/i-new", time.Minute, false},
		"new, without an id":                   {"ip-10-80-0-9.ec2.internal", "", time.Minute, false},
	} {
		var n Node
		n.Metadata.Name = c.node
		n.Metadata.CreationTimestamp = now.Add(-c.age)
		n.Spec.ProviderID = c.provider
		removed, _ := NodeChanges([]Node{n}, machines, now.Add(-missingInstanceGrace))
		if (len(removed) == 1) != c.removed {
			t.Errorf("%s: removed is %t", name, len(removed) == 1)
		}
	}
}

// TestNodesOfSleepingMachinesAreRemoved checks that the node of a machine that was drained and then stopped is removed: it is in a
// warm pool, and registers again when it is started. A node whose machine was stopped without a drain stays.
func TestNodesOfSleepingMachinesAreRemoved(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const name = "ip-10-80-0-6.ec2.internal"
	for _, c := range []struct {
		state            string
		drained, removed bool
	}{
		{"stopped", true, true},
		{"stopping", true, true},
		{"stopped", false, false},
		{"running", true, false},
		{"pending", true, false},
	} {
		var n Node
		n.Metadata.Name = name
		n.Metadata.CreationTimestamp = now.Add(-time.Hour)
		n.Spec.ProviderID = "aws:///us-east-1a/i-pooled"
		if c.drained {
			n.Metadata.Annotations = map[string]string{terminatingAnnotation: "it sleeps"}
		}
		machines := []Machine{{ID: "i-pooled", Name: name, State: c.state, Role: "worker"}}
		if removed, _ := NodeChanges([]Node{n}, machines, now.Add(-missingInstanceGrace)); (len(removed) == 1) != c.removed {
			t.Errorf("%+v: removed is %t", c, len(removed) == 1)
		}
		if live := liveWorkers(machines); live[name] != "i-pooled" {
			t.Errorf("%+v: the machine may not register again: %v", c, live)
		}
	}
}

// TestNodesOfARestoredBackup: a backup of another cluster has nodes with the names of this one's machines. They are deleted at once,
// so that the kubelets register again; the nodes of machines that have joined since are not.
func TestNodesOfARestoredBackup(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	a := &Agent{Now: func() time.Time { return now }}
	restored := now.Add(-2 * time.Minute)
	machines := []Machine{{ID: "i-own", Name: "ip-10-80-0-4.ec2.internal", State: "running", Role: "control-plane"}}
	for created, removed := range map[time.Time]bool{restored.Add(-time.Minute): true, restored.Add(time.Minute): false} {
		var n Node
		n.Metadata.Name = "ip-10-80-0-4.ec2.internal"
		n.Metadata.CreationTimestamp = created
		n.Spec.ProviderID = "aws:///us-east-1a/i-of-the-other-cluster"
		a.restoredAt.Store(nil)
		if terminated, _ := NodeChanges([]Node{n}, machines, listedSince(a)); len(terminated) > 0 {
			t.Error("a new node was removed although nothing was restored")
		}
		a.restoredAt.Store(&restored)
		if terminated, _ := NodeChanges([]Node{n}, machines, listedSince(a)); (len(terminated) == 1) != removed {
			t.Errorf("created at %s: %d removed", created, len(terminated))
		}
	}
}
