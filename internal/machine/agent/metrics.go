// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/metrics"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// metricsAddress is where the agent of a control-plane machine serves its metrics, next to etcd's: only programs on the machine
// reach it.
const metricsAddress = "127.0.0.1:2382"

// knownMetrics is what the tasks of the agent found out last. The zero value is ready to use. It is safe for concurrent use.
type knownMetrics struct {
	mu    sync.Mutex
	facts metrics.Facts
	// backups are those that this machine listed last, when it had etcd's leader; listed is set if it has had it.
	backups []backup.Backup
	listed  bool
}

func (k *knownMetrics) noteReport(r report.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.Report = &r
}

func (k *knownMetrics) noteQuorum(q etcd.QuorumReport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.facts.Quorum = &q
}

func (k *knownMetrics) noteBackups(list []backup.Backup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.backups = list
	k.listed = true
}

// known returns a copy. Which backups are from the future depends on now: the clock may have been set right since they were listed.
func (k *knownMetrics) known(settings v1alpha1.EtcdBackup, now time.Time) metrics.Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.facts
	policy, err := backup.NewPolicy(settings)
	if err != nil {
		return out
	}

	out.Policy = &policy
	if k.listed {
		out.Backups = metrics.NewBackups(policy, k.backups, now)
	}

	return out
}

// metricsHandler serves the metrics.
type metricsHandler struct {
	agent  *Agent
	member *etcdMember
}

// ServeHTTP answers GET /metrics.
func (h metricsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}

	facts := h.agent.metrics.known(h.agent.doc.Etcd.Backup, h.agent.Now())
	facts.Slots = len(h.agent.doc.Slots)
	number, err := h.member.dataGeneration(etcd.DataDir)
	if err != nil { // as on a volume that does not work, which a condition says
		number = 0
	}

	facts.Generation = number
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(metrics.Render(facts)) // who asked has gone
}

// keepMetrics serves the metrics until ctx ends.
func (m *etcdMember) keepMetrics(ctx context.Context) error {
	return keepServing(ctx, m.agent, loopbackServer{
		serves:  "the agent's metrics",
		address: metricsAddress,
		handler: metricsHandler{agent: m.agent, member: m},
	})
}
