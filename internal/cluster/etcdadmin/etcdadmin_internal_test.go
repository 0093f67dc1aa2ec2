// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// askMachine asks and lets machine answer with what it wants. It returns the messages too.
func askMachine(t *testing.T, machine func(ctx context.Context, s store.Store, r backup.Request)) (answer backup.Answer, messages []string, err error) {
	t.Helper()
	env := &cluster.Env{Now: time.Now, User: "alice", Hooks: cluster.Hooks{Notify: func(m string) { messages = append(messages, m) }}}
	s := store.NewFileStore(t.TempDir())
	admin := &Admin{env: env, name: "demo", archive: backup.Archive{Store: s, Cluster: "demo"}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if r, err := (backup.Archive{Store: s, Cluster: "demo"}).ReadRequest(ctx); err == nil && r != nil {
				machine(ctx, s, *r)
				return
			}
			time.Sleep(time.Second)
		}
	}()
	answer, err = admin.ask(t.Context(), Request{Type: backup.RequestSnapshot})
	stop()
	<-done
	return answer, messages, err
}

func TestAsk(t *testing.T) {
	write := func(ctx context.Context, s store.Store, a backup.Answer) {
		a.UpdatedAt = time.Now()
		a.Machine = "i-1"
		_ = (backup.Archive{Store: s, Cluster: "demo"}).WriteAnswer(ctx, a)
	}
	for name, c := range map[string]struct {
		machine func(context.Context, store.Store, backup.Request)
		want    string // of the error
		within  time.Duration
	}{
		"done": {machine: func(ctx context.Context, s store.Store, r backup.Request) {
			write(ctx, s, backup.Answer{ID: r.ID, Step: "began"})
			time.Sleep(20 * time.Minute / 10)
			write(ctx, s, backup.Answer{ID: r.ID, Done: true, Backup: "b"})
		}, within: 3 * time.Minute},
		"failed": {machine: func(ctx context.Context, s store.Store, r backup.Request) {
			write(ctx, s, backup.Answer{ID: r.ID, Done: true, Error: "disk full"})
		}, want: "machine i-1: disk full", within: 5 * time.Second},
		"the answer to another request does not count": {machine: func(ctx context.Context, s store.Store, _ backup.Request) {
			write(ctx, s, backup.Answer{ID: "other", Done: true, Backup: "b"})
		}, want: "no machine has begun with the request within 1m30s", within: 2 * time.Minute},
		"nobody answers": {
			machine: func(context.Context, store.Store, backup.Request) {},
			want:    "etcd has no leader", within: 2 * time.Minute,
		},
		"a clock may be wrong": {
			machine: func(context.Context, store.Store, backup.Request) {},
			want:    "differs by more than 10m0s from that of this computer, by which it is 2000-01-01 00:01:31Z",
			within:  2 * time.Minute,
		},
		"silence": {machine: func(ctx context.Context, s store.Store, r backup.Request) {
			write(ctx, s, backup.Answer{ID: r.ID, Step: "began"})
		}, want: "has not answered for 5m0s", within: 6 * time.Minute},
		"a long request": {machine: func(ctx context.Context, s store.Store, r backup.Request) {
			for range 60 {
				write(ctx, s, backup.Answer{ID: r.ID, Step: "began"})
				time.Sleep(30 * time.Second)
			}
			write(ctx, s, backup.Answer{ID: r.ID, Done: true, Backup: "b"})
		}, within: 31 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				answer, messages, err := askMachine(t, c.machine)
				switch {
				case c.want == "" && (err != nil || answer.Backup != "b" || len(messages) != 1):
					t.Errorf("%+v, %v, %q", answer, err, messages)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("error %v, want %q", err, c.want)
				}
				if took := time.Since(start); took > c.within {
					t.Errorf("took %s, want at most %s", took, c.within)
				}
			})
		})
	}
}

// threeMembers returns the facts of a control plane whose leader is b.
func threeMembers() health.Facts {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	f := health.Facts{Now: now, Reports: map[string]health.MachineReport{}}
	for _, slot := range []string{"a", "b", "c"} {
		id := "i-" + slot
		f.Groups = append(f.Groups, health.Group{Name: "control-plane", Slot: slot, Size: 1})
		f.Instances = append(f.Instances, health.Instance{ID: id, Group: "control-plane", Slot: slot, State: "running"})
		f.Reports[id] = health.MachineReport{PublishedAt: now, Report: report.Report{
			Time: now, NextSeconds: 5, Machine: id, Slot: slot,
			Etcd: &report.Etcd{Quorum: true, MemberID: slot, LeaderID: "b", DBSize: 1 << 20, Version: "3.6.14"},
		}}
	}
	return f
}

func TestMembers(t *testing.T) {
	f := threeMembers()
	silent := f.Reports["i-a"]
	silent.Etcd = &report.Etcd{Error: "connection refused"}
	silent.Conditions = []report.Condition{{Component: report.EtcdMember, State: report.Failed, Cause: "does not answer"}}
	silent.Disks = []report.Disk{
		{Path: "/", SizeBytes: 20 << 30, UsedBytes: 5 << 30},
		{Path: "/var/lib/slipway/etcd", SizeBytes: 10 << 30},
	}
	f.Reports["i-a"] = silent
	f.Instances[2].State = "terminated"
	got := membersOf(f)
	if got[0].rootDisk != silent.Disks[0] || got[0].volumeSize != 10<<30 {
		t.Errorf("disks %+v, %d", got[0].rootDisk, got[0].volumeSize)
	}
	roles := []string{got[0].Role, got[1].Role, got[2].Role}
	if diff := cmp.Diff([]string{"unknown", "leader", "unknown"}, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	if got[0].Healthy || !got[1].Healthy || got[2].Healthy || got[0].Problem == "" || got[2].Problem == "" || got[2].Machine != "" {
		t.Errorf("%+v", got)
	}
	if _, err := DefragOrder(Status{Cluster: "demo", Members: got}); err == nil || !strings.Contains(err.Error(), "etcd-a is not healthy") {
		t.Errorf("members would be defragmented while one does not work: %v", err)
	}
}

// TestMembersWithWarnings: a member that works is healthy, whatever there is to say about it: with slow disks or databases near their quota
// the cluster has a quorum, and is defragmented.
func TestMembersWithWarnings(t *testing.T) {
	f := threeMembers()
	for id, r := range f.Reports {
		r.Conditions = []report.Condition{{Component: report.EtcdMember, State: report.Warning, Cause: "its disk is slow"}}
		f.Reports[id] = r
	}
	got := membersOf(f)
	for _, m := range got {
		if !m.Healthy || m.Problem != "its disk is slow" {
			t.Errorf("%+v", m)
		}
	}
	if _, err := DefragOrder(Status{Members: got}); err != nil {
		t.Error(err)
	}
}

func TestDefragOrder(t *testing.T) {
	order, err := DefragOrder(Status{Members: membersOf(threeMembers())})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range order {
		names = append(names, m.Name)
	}
	if diff := cmp.Diff([]string{"etcd-a", "etcd-c", "etcd-b"}, names); diff != "" {
		t.Errorf("the leader is not the last one (-want +got):\n%s", diff)
	}
}

// TestOneLeader: after a change of the leader, the reports of before and after it name two leaders, or none about itself.
func TestOneLeader(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		named []string // by the reports of a, b and c, oldest first
		want  []string
	}{
		"the former leader has reported, the new one not": {[]string{"1", "1", "2"}, []string{"voter", "leader", "voter"}},
		"nobody takes itself for the leader":              {[]string{"2", "1", "2"}, []string{"voter", "leader", "voter"}},
		"two take themselves for the leader":              {[]string{"1", "2", "2"}, []string{"voter", "leader", "voter"}},
		"the leader was removed":                          {[]string{"1", "1", "9"}, []string{"leader", "voter", "voter"}},
	} {
		f := health.Facts{Now: now, Reports: map[string]health.MachineReport{}}
		for i, slot := range []string{"a", "b", "c"} {
			id := "i-" + slot
			f.Groups = append(f.Groups, health.Group{Name: "control-plane-" + slot, Slot: slot})
			f.Instances = append(f.Instances, health.Instance{ID: id, Group: "control-plane-" + slot, Slot: slot, State: "running"})
			f.Reports[id] = health.MachineReport{
				PublishedAt: now.Add(time.Duration(i-5) * time.Second),
				Report: report.Report{Machine: id, Slot: slot, Etcd: &report.Etcd{
					Quorum: true, MemberID: string(rune('1' + i)), LeaderID: c.named[i],
				}},
			}
		}
		var roles []string
		for _, m := range membersOf(f) {
			roles = append(roles, m.Role)
		}
		if diff := cmp.Diff(c.want, roles); diff != "" {
			t.Errorf("%s (-want +have):\n%s", name, diff)
		}
	}
}

// TestRestorationIsContinued: a restoration whose machine was lost could not be repeated: the command waited for it forever.
func TestRestorationIsContinued(t *testing.T) {
	last := &etcd.Generation{Number: 2, Backup: "b1", Slot: "a"}
	for name, c := range map[string]struct {
		request  RestoreRequest
		last     *etcd.Generation
		restored int
		want     bool
	}{
		"the first restoration":           {RestoreRequest{}, nil, 0, false},
		"it runs":                         {RestoreRequest{}, last, 0, true},
		"it runs on the asked machine":    {RestoreRequest{Slot: "a"}, last, 1, true},
		"another machine is to do it":     {RestoreRequest{Slot: "b"}, last, 0, false},
		"it is to be repeated":            {RestoreRequest{Again: true}, last, 1, false},
		"another volume is to have it":    {RestoreRequest{Volume: "vol-b"}, last, 0, false},
		"all members have it":             {RestoreRequest{}, last, 3, false},
		"the last one was another backup": {RestoreRequest{}, &etcd.Generation{Number: 3, Backup: "b2", Slot: "a"}, 0, false},
	} {
		if got := c.request.continues(c.last, "b1", c.restored, 3); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestChooseBackup: the error of a backup that cannot be restored says why.
func TestChooseBackup(t *testing.T) {
	broken := backup.Backup{Metadata: backup.Metadata{ID: "broken"}, Verification: &backup.Verification{Error: "damaged"}}
	listing := backup.Listing{
		Backups:    []backup.Backup{{Metadata: backup.Metadata{ID: "good"}}, broken},
		Unreadable: []backup.Unreadable{{ID: "later", Reason: "format 9 is not known"}},
	}
	for id, want := range map[string]string{
		"good":   "",
		"broken": "backup broken cannot be restored: damaged",
		"later":  "backup later cannot be used: format 9 is not known",
		"none":   `there is no backup "none"`,
	} {
		found, err := chooseBackup(listing, id)
		if want == "" && (err != nil || found.ID != id) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", id, found, err)
		}
	}

	if _, err := chooseBackup(backup.Listing{}, "none"); err == nil || !strings.Contains(err.Error(), "the cluster has none") {
		t.Error(err)
	}
}
