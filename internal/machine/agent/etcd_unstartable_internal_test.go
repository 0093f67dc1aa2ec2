// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	eventually(t, "the agent sets the data aside", func() error {
		r.now = r.now.Add(maintenanceInterval)
		if err := r.maintain(); err != nil {
			return err
		}
		if !task.agent.etcdFenced.Load() {
			return errors.New("still used: " + task.reason)
		}
		return nil
	})
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
