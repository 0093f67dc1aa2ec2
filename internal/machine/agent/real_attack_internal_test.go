// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// checkNodeAttacks makes the attacks of test/attack on an API server with the flags and the files of a machine.
func checkNodeAttacks(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	attackedCluster(t, a, api).CheckNodeAttacks(t)
}

func attackedCluster(t *testing.T, a *Agent, api kube.Client) apitest.Cluster {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true}

	return apitest.Cluster{
		API:      api,
		Stranger: &http.Client{Timeout: 5 * time.Second, Transport: transport},
		As:       func(leaf pki.Leaf) *http.Client { return clientOf(t, a, leaf) },
	}
}

// checkGhostAttacks registers nodes with certificates of machines that are gone, once the agent has recorded who lives.
func checkGhostAttacks(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	machines := []Machine{
		{ID: "i-live", Name: "live", State: "running", Role: node.RoleTagWorker},
		{ID: "i-new", Name: "reused", State: "running", Role: node.RoleTagWorker},
		{ID: "i-old", Name: "reused", State: "terminated", Role: node.RoleTagWorker},
		{ID: "i-gone", Name: "gone", State: "shutting-down", Role: node.RoleTagWorker},
	}
	eventually(t, "record live machines", func() error {
		return recordLiveMachines(t.Context(), api, false, diffLiveMachines(nil, liveWorkers(machines)))
	})
	cluster := attackedCluster(t, a, api)
	cluster.CheckGhostAttacks(t)
	if err := announceMachine(t.Context(), api, join.Machine{ID: "i-just", Name: "just"}); err != nil {
		t.Error(err)
	}
	eventually(t, "a machine that was just announced", func() error {
		if status, text := cluster.Register(t, "just", "i-just"); status != http.StatusCreated && status != http.StatusConflict {
			return fmt.Errorf("answer %d: %s", status, text)
		}
		return nil
	})
}
