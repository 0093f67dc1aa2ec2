// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestControlPlaneSpeaksForWorkers: a worker has no right to end the wait of Auto Scaling. It asks the join endpoint of the
// control plane, which does that for the machine that asks and tells whether Auto Scaling waited.
func TestControlPlaneSpeaksForWorkers(t *testing.T) {
	const address = "127.77.0.9"
	group := &launchGroup{t: t, waits: true}
	a := testAgent(t)
	a.instance.ID = "i-1"
	a.Boot.API.Internal = address
	a.Scaling = group
	a.Sign = join.Signer{
		Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		Region:      "us-east-1",
		Endpoint:    "https://sts.example",
		Now:         time.Now,
	}
	server := serveJoinAt(t, a, address, ec2Name)

	worker := a.withDocument(a.doc)
	worker.doc.Role = v1alpha1.RoleWorker
	hook := newLifecycleHook(worker, node.LaunchHook)
	if err := hook.beat(t.Context()); err != nil || group.beats != 1 {
		t.Errorf("%d heartbeats: %v", group.beats, err)
	}

	for _, want := range []bool{true, false} {
		if waited, err := hook.completeWaiting(t.Context()); err != nil || waited != want {
			t.Errorf("Auto Scaling waited: %t, want %t; %v", waited, want, err)
		}
	}

	group.err = errors.New("no route to host")
	if _, err := hook.completeWaiting(t.Context()); err == nil || strings.Contains(err.Error(), "no route") {
		t.Errorf("an error of the control plane: %v", err)
	}

	_ = server.Close()
	if _, err := hook.completeWaiting(t.Context()); err == nil {
		t.Error("no error without a control plane")
	}

	calls := group.calls
	a.doc.Role = v1alpha1.RoleControlPlane
	if _, err := newLifecycleHook(a, node.TerminationHook).completeWaiting(t.Context()); err != nil || group.calls != calls {
		t.Errorf("a machine of the control plane, for which nothing waits: %v", err)
	}
}

// TestCertificatesOfNodesAreShort: a certificate of a worker that is stolen is of use for 12 hours at most.
func TestCertificatesOfNodesAreShort(t *testing.T) {
	if got := testAgent(t).newJoinServer().TTL; got != 12*time.Hour {
		t.Errorf("certificates of nodes are valid for %s, and docs/security.md says 12 hours", got)
	}
}
