// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// exitsRunner stops a member instead of its unit, and says that its process has ended once more whenever it is asked.
type exitsRunner struct {
	stopRunner
	exits *int
}

func (r exitsRunner) Run(ctx context.Context, name string, args ...string) (string, error) {
	if line := name + " " + strings.Join(args, " "); line != "systemctl show etcd --property=NRestarts --value" {
		return r.stopRunner.Run(ctx, name, args...)
	}
	*r.exits++
	return strconv.Itoa(*r.exits) + "\n", nil
}

// TestRealUnstartableMember: the volume of a member has lost writes that it had acknowledged, so that etcd ends at each start
// with "tocommit is out of range". Its agent sets the data aside, and the member joins again.
func TestRealUnstartableMember(t *testing.T) {
	r := newRealCluster(t)
	r.fill()
	c := r.manager.Peers[2]
	task := r.tasks["c"]
	root := task.agent.Root
	r.stops["c"]()
	earlier := root.Path(etcd.DataMount + "/earlier")
	if err := os.CopyFS(earlier, os.DirFS(r.dir("c"))); err != nil {
		t.Fatal(err)
	}
	r.start(c, "existing")
	r.await(c)
	r.lead(0)
	r.fill() // and member c acknowledges it
	r.stops["c"]()
	if err := errors.Join(os.RemoveAll(r.dir("c")), os.Rename(earlier, r.dir("c"))); err != nil {
		t.Fatal(err)
	}
	r.start(c, "existing")
	if state, err := r.processes["c"].Wait(); err != nil || state.Success() {
		t.Fatalf("etcd ran with the earlier data: %v, %v", state, err)
	}

	exits := 0
	task.agent.Run = exitsRunner{stopRunner{stop: func() {}}, &exits}
	r.awaitFenced(task)
	if exits <= etcd.UnstartableExits || time.Duration(exits-1)*maintenanceInterval < etcd.UnstartableTime {
		t.Errorf("set aside after %d looks", exits)
	}
	if !root.Exists(corruptDir+"/member") || root.Exists(etcd.DataDir+"/member") {
		t.Error("the data was not moved")
	}
	if r.tasks["a"].agent.etcdFenced.Load() || r.tasks["b"].agent.etcdFenced.Load() {
		t.Error("a member that works was stopped")
	}
	r.rejoin(c)
	eventually(t, "the member that joined again has the data", func() error { // it applies its own promotion later than the others
		got, err := r.client(2).Get(t.Context(), "key3")
		if err == nil && len(got.Kvs) != 1 {
			return fmt.Errorf("%d keys", len(got.Kvs))
		}
		return err
	})
}

// awaitFenced lets the agents look until that of a task has set its member's data aside.
func (r *realCluster) awaitFenced(task *etcdMaintenance) {
	r.Helper()
	eventually(r.T, "the agent sets the data aside", func() error {
		r.now = r.now.Add(maintenanceInterval)
		if err := r.maintain(); err != nil {
			return err
		}
		if !task.agent.etcdFenced.Load() {
			return errors.New("still used: " + task.reason)
		}
		return nil
	})
}

// TestRealUnstartableLearner: the machine of a learner lost its power while it copied, and the member's log is damaged. It is the only
// member that is missing, so nobody removed it. Its agent sets the data aside, and the member copies that of the others again.
func TestRealUnstartableLearner(t *testing.T) {
	r := newRealCluster(t)
	r.fill()
	c := r.manager.Peers[2]
	task := r.tasks["c"]
	r.stops["c"]()
	if err := os.RemoveAll(r.dir("c")); err != nil {
		t.Fatal(err)
	}
	r.beginLearner(c)
	eventually(t, "the learner has data", func() error {
		_, err := r.manager.Status(t.Context(), c.ClientURL)
		return err
	})
	r.stops["c"]()
	logs, err := filepath.Glob(r.dir("c") + "/member/wal/*.wal")
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	if err := os.WriteFile(logs[0], bytes.Repeat([]byte{0xff}, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(c, "existing")
	if state, err := r.processes["c"].Wait(); err != nil || state.Success() {
		t.Fatalf("etcd ran with the damaged log: %v, %v", state, err)
	}

	exits := 0
	task.agent.Run = exitsRunner{stopRunner{stop: func() {}}, &exits}
	r.awaitFenced(task)
	if root := task.agent.Root; !root.Exists(etcd.LearnerAsideDir+"/member") || root.Exists(etcd.DataDir+"/member") {
		t.Error("the data was not moved")
	}
	r.rejoin(c)
	eventually(t, "the member that joined again has the data", func() error {
		got, err := r.client(2).Get(t.Context(), "key3")
		if err == nil && len(got.Kvs) != 1 {
			return fmt.Errorf("%d keys", len(got.Kvs))
		}
		return err
	})
}
