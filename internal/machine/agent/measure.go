// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// measurer measures the state of the machine for its report.
type measurer struct {
	agent *Agent
	// member of a control-plane machine; nil on workers.
	member *etcdMember
	// kubeletURL and apiURL are the URLs of the machine's own health checks.
	kubeletURL string
	apiURL     string
	// syncs are the counts of the last minutes.
	syncs syncHistory
	// http is the client for health checks. Its timeout is short: what hangs does not work.
	http *http.Client
}

func (a *Agent) newMeasurer(m *etcdMember) *measurer {
	return &measurer{
		agent:      a,
		member:     m,
		kubeletURL: kubeletHealthURL,
		apiURL:     "https://127.0.0.1:" + kube.APIPort,
		http: &http.Client{
			Timeout:   healthCheckTimeout,
			Transport: &http.Transport{TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true},
		},
	}
}

// measure returns the machine's report with the conditions of all components. It takes a few seconds at most,
// also if nothing answers.
func (m *measurer) measure(ctx context.Context) report.Report {
	a := m.agent
	r := report.Report{
		Time:         a.Now().UTC(),
		Machine:      a.instance.ID,
		Node:         a.instance.Name,
		Group:        a.doc.Group,
		Slot:         a.Boot.Slot,
		Disks:        []report.Disk{measureDisk(a.Root, "/")},
		Certificates: readCertificates(a.Root),
		Versions:     report.Versions{Kubernetes: a.doc.KubernetesVersion, Document: a.Boot.Document.SHA256},
	}
	if status := a.documentStatus.Load(); status != nil {
		r.Versions.Document = status.effective
		r.Revision = status.Revision
	}

	var probes sync.WaitGroup
	probes.Go(func() { r.Kubelet, r.Containerd = m.measureServices(ctx) })
	if m.member != nil {
		r.Disks = append(r.Disks, measureDisk(a.Root, etcd.DataMount))
		probes.Go(func() { r.APIServer = m.measureAPIServer(ctx) })
		probes.Go(func() { r.Etcd = m.measureEtcd(ctx) })
	}

	probes.Wait()
	if r.Etcd != nil {
		r.Versions.Etcd = r.Etcd.Version
	}

	for _, c := range report.Evaluate(r) {
		a.conditions.Set(c, r.Time)
	}

	r.Conditions = a.conditions.Conditions()

	return r
}

// measureServices asks systemd for the states of kubelet and containerd, and the kubelet for its health.
func (m *measurer) measureServices(ctx context.Context) (kubelet, containerd report.Service) {
	// is-active prints one state a unit. It fails if one of them is not active.
	out, _ := m.agent.Run.Run(ctx, "systemctl", "is-active", "kubelet", "containerd")
	states := strings.Fields(out)
	if len(states) >= 2 {
		kubelet.Unit = states[0]
		containerd.Unit = states[1]
	}

	body, err := HTTPOpener{Client: m.http}.Open(ctx, m.kubeletURL)
	if err != nil {
		kubelet.Error = healthCheckError(err)
		return kubelet, containerd
	}

	_ = body.Close() // its content does not matter

	return kubelet, containerd
}

// measureAPIServer asks the machine's own API server which of its checks fail.
func (m *measurer) measureAPIServer(ctx context.Context) *report.APIServer {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.apiURL+"/readyz?verbose", nil)
	if err != nil {
		return &report.APIServer{Error: err.Error()}
	}

	resp, err := m.http.Do(req)
	if err != nil {
		return &report.APIServer{Error: healthCheckError(err)}
	}

	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	switch {
	case err != nil:
		return &report.APIServer{Error: err.Error()}
	case resp.StatusCode == http.StatusOK && !m.agent.apiOpen.Load():
		return &report.APIServer{FailedChecks: []string{"authorization"}}
	case resp.StatusCode == http.StatusOK:
		return &report.APIServer{Ready: true}
	}

	failed := failedChecks(string(body))
	if len(failed) == 0 {
		return &report.APIServer{Error: "/readyz: " + resp.Status}
	}

	return &report.APIServer{FailedChecks: failed}
}

// healthCheckError returns why a health check did not answer, without the URL, which its reader cannot reach.
func healthCheckError(err error) string {
	request, ok := errors.AsType[*url.Error](err)
	switch {
	case !ok:
		return err.Error()
	case request.Timeout():
		return "no answer within " + healthCheckTimeout.String()
	default:
		return request.Err.Error()
	}
}

// healthCheckTimeout limits a health check: what hangs does not work.
const healthCheckTimeout = 2 * time.Second

// failedChecks returns the names of the failed checks in the answer of /readyz?verbose. Their lines are like
// "[-]etcd failed: reason withheld".
func failedChecks(body string) []string {
	var out []string
	for line := range strings.Lines(body) {
		if check, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			name, _, _ := strings.Cut(check, " ")
			out = append(out, name)
		}
	}

	return out
}

// measureEtcd asks the machine's own member and all others at the same time.
func (m *measurer) measureEtcd(ctx context.Context) *report.Etcd {
	manager := m.agent.newEtcdManager()
	var probes sync.WaitGroup
	peers := make([]report.Peer, 0, len(manager.Peers))
	for _, p := range manager.Peers {
		if p.Slot != m.member.slot.Name {
			peers = append(peers, report.Peer{Slot: p.Slot})
		}
	}

	for i := range peers {
		at := slices.IndexFunc(manager.Peers, func(p etcd.Peer) bool { return p.Slot == peers[i].Slot })
		probes.Go(func() { peers[i].Error = probePeer(ctx, manager, manager.Peers[at].ClientURL) })
	}

	out := report.Etcd{}
	probes.Go(func() {
		status, quorum, err := manager.Probe(ctx, etcd.ClientURL)
		if err != nil {
			out = report.Etcd{Error: err.Error()}
			return
		}

		out = newEtcdReport(status, quorum)
	})
	probes.Go(func() { m.measureSyncs(ctx) })

	probes.Wait()
	m.agent.peersAnswer.Store(!slices.ContainsFunc(peers, func(p report.Peer) bool { return p.Error != "" }))
	out.Peers = peers
	out.SyncMillis = m.syncs.slowest().Milliseconds()

	return &out
}

// measureSyncs notes how long etcd's writes to its disk take. A member that does not answer is reported otherwise.
func (m *measurer) measureSyncs(ctx context.Context) {
	counts, err := etcd.ReadSyncCounts(ctx, m.http, etcd.MetricsURL)
	if err == nil {
		m.syncs.note(m.agent.Now(), counts)
	}
}

// syncWindow is the time over which the writes of etcd to its disk are judged.
const syncWindow = 5 * time.Minute

// syncHistory has the counts of etcd's writes in the last syncWindow. The zero value is ready to use.
type syncHistory struct{ samples []syncSample }

type syncSample struct {
	at     time.Time
	counts etcd.SyncCounts
}

// note adds the current counts.
func (h *syncHistory) note(now time.Time, counts etcd.SyncCounts) {
	h.samples = append(h.samples, syncSample{at: now, counts: counts})
	for len(h.samples) > 2 && now.Sub(h.samples[1].at) >= syncWindow {
		h.samples = h.samples[1:]
	}
}

// slowest returns the time that 1% of the writes exceeded, once the window is full; 0 if it is not known.
func (h *syncHistory) slowest() time.Duration {
	if len(h.samples) == 0 {
		return 0
	}

	first := h.samples[0]
	last := h.samples[len(h.samples)-1]
	if last.at.Sub(first.at) < syncWindow {
		return 0
	}

	return last.counts.SlowestPercent(first.counts)
}

// probePeer returns why another member does not answer, or an empty text.
func probePeer(ctx context.Context, manager etcd.Manager, peerURL string) string {
	if err := manager.Ping(ctx, peerURL); err != nil {
		return err.Error()
	}

	return ""
}

func newEtcdReport(s etcd.Status, quorum bool) report.Etcd {
	out := report.Etcd{
		Quorum:    quorum,
		MemberID:  strconv.FormatUint(s.MemberID, 16),
		Learner:   s.Learner,
		RaftIndex: s.RaftIndex,
		DBSize:    s.DBSize,
		Quota:     s.Quota,
		Alarms:    s.Alarms(),
		Version:   s.Version,
	}
	if s.LeaderID != 0 {
		out.LeaderID = strconv.FormatUint(s.LeaderID, 16)
	}

	return out
}

// measureDisk returns the use of the file system that is mounted at path.
func measureDisk(root *HostFS, path string) report.Disk {
	d := report.Disk{Path: path}
	var s syscall.Statfs_t
	if err := syscall.Statfs(root.Path(path), &s); err != nil {
		d.Error = err.Error()
		return d
	}

	// As df: what only root may use counts neither as free nor as used.
	block := s.Bsize
	used := int64(s.Blocks-s.Bfree) * block
	d.UsedBytes = used
	d.SizeBytes = used + int64(s.Bavail)*block
	d.ReadOnly = s.Flags&readOnlyFlag != 0
	if s.Files > 0 {
		d.InodesUsedPercent = int((s.Files - s.Ffree) * 100 / s.Files)
	}

	return d
}

// readOnlyFlag is ST_RDONLY of statfs(2).
const readOnlyFlag = 1

// readCertificates returns all certificates of the machine, sorted by name. It leaves out what cannot be
// read: the program that needs it reports that.
func readCertificates(root *HostFS) []report.Certificate {
	var out []report.Certificate
	for _, dir := range append(componentDirs(), kube.PKIDir, etcd.PKIDir) {
		prefix := ""
		if dir == etcd.PKIDir {
			prefix = "etcd-"
		}

		files, err := filepath.Glob(root.Path(dir) + "/*.crt")
		if err != nil {
			continue
		}

		for _, file := range files {
			name := prefix + strings.TrimSuffix(filepath.Base(file), ".crt")
			if c, err := readCertificate(file, name); err == nil {
				out = append(out, c)
			}
		}
	}

	slices.SortFunc(out, func(a, b report.Certificate) int { return strings.Compare(a.Name, b.Name) })

	// Several components have the same authorities.
	return slices.CompactFunc(out, func(a, b report.Certificate) bool { return a == b })
}

func readCertificate(file, name string) (report.Certificate, error) {
	body, err := os.ReadFile(file)
	if err != nil {
		return report.Certificate{}, fmt.Errorf("read certificate: %w", err)
	}

	certs, err := pki.ParseCerts(body)
	if err != nil {
		return report.Certificate{}, err
	}

	if len(certs) == 0 {
		return report.Certificate{}, errors.New(file + " contains no certificate")
	}

	out := report.Certificate{Name: name, CA: certs[0].IsCA}
	for _, c := range certs { // a rotated CA: the old certificate may expire
		if c.NotAfter.After(out.NotAfter) {
			out.NotAfter = c.NotAfter.UTC()
			out.RenewAt = renewAt(c).UTC()
		}
	}

	if out.CA {
		out.RenewAt = time.Time{}
	}

	return out, nil
}
