// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// periodicTask is a function that the agent runs repeatedly.
type periodicTask struct {
	name     string
	interval time.Duration
	run      func(context.Context) error
}

// againError means that a task has succeeded and continues sooner than at its interval.
type againError struct{ after time.Duration }

func (e againError) Error() string { return "continues in " + e.after.String() }

// progressError means that a task is not ready, but has taken a step, and takes the next one after progressPause.
type progressError struct{ notReadyError }

func (e progressError) Unwrap() error { return e.notReadyError }

// progressPause is the time between two steps that depend on nothing else.
const progressPause = time.Second

// runPeriodicTasks runs the tasks of the machine's role until ctx ends. On the control plane it
// also serves the join endpoint.
func (a *Agent) runPeriodicTasks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	tasks := a.workerTasks()
	if a.doc.Role == v1alpha1.RoleControlPlane {
		m, err := a.newEtcdMember()
		if err != nil {
			return err
		}

		tasks = a.controlPlaneTasks(m)
		group.Go(func() error { return a.serveJoin(ctx) })
		group.Go(func() error { return m.keepBackups(ctx) })
		group.Go(func() error { return m.keepAuditLog(ctx) })
		group.Go(func() error { return m.keepGeneration(ctx) })
		group.Go(func() error { return m.keepMaintained(ctx) })
		group.Go(func() error { return m.keepRecovered(ctx) })
		group.Go(func() error { return m.keepSize(ctx) })
		if !a.doc.HasNetworkOfChannel() { // which enforces NetworkPolicies itself
			group.Go(func() error { return newPolicyCompiler(a, a.newAdminClient()).run(ctx) })
		}

		group.Go(func() error { return m.keepMetrics(ctx) })
		gate := newAPIGate(a)
		group.Go(func() error { return gate.keepUntilDone(ctx) })
		group.Go(func() error { return handOverWatch{agent: a, member: m, api: a.newAdminClient()}.run(ctx) })
	}

	group.Go(func() error { return newFollower(a).run(ctx) })
	group.Go(func() error { return newPolicyLoader(a).run(ctx) })
	group.Go(func() error { return keepInstanceData(ctx, a) })
	group.Go(func() error { return newTerminationWatch(a).run(ctx) })
	for _, task := range tasks {
		group.Go(func() error { return task.repeat(ctx, a, time.Minute) })
	}

	group.Go(func() error {
		if err := a.retryUntilReady(ctx, "ready", func() error { return a.checkReady(ctx) }); err != nil {
			return err
		}

		return a.signalSuccess(ctx)
	})

	return group.Wait()
}

// repeat runs the task at its interval until ctx ends, each time for at most timeout. After a failure it retries with
// exponential backoff from 1 second up to the interval, and after a step without growing. Repeated failures with the same message
// are logged once.
func (task periodicTask) repeat(ctx context.Context, a *Agent, timeout time.Duration) error {
	failures := failureLog{agent: a, task: task.name}
	backoff := time.Second
	for {
		runCtx, cancel := context.WithTimeout(ctx, timeout)
		err := task.run(runCtx)
		cancel()
		pause := min(backoff, task.interval)
		backoff = 2 * pause
		var notReady notReadyError
		var progress progressError
		again := againError{after: task.interval}

		switch {
		case err == nil, errors.As(err, &again):
			failures.note(nil)
			backoff = time.Second
			pause = min(again.after, task.interval)

		case errors.As(err, &progress):
			backoff = time.Second
			pause = progressPause

		case errors.As(err, &notReady), ctx.Err() != nil:
		default:
			failures.note(err)
		}

		if err := a.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (a *Agent) workerTasks() []periodicTask {
	return []periodicTask{
		{"certificates", time.Minute, a.renewNodeCertificates},
		{"report", report.Interval, a.newReportPublisher(nil).run},
		{"restore", restoreInterval, newRestorer(a).lookAndRestore},
		{"metadata", guardInterval, a.guardMetadata},
		{"registry", time.Minute, func(ctx context.Context) error { return keepRegistry(ctx, a) }},
		{
			"registration",
			20 * time.Second,
			func(ctx context.Context) error { return a.ensureNodeRegistered(ctx, a.newNodeClient()) },
		},
	}
}

func (a *Agent) controlPlaneTasks(m *etcdMember) []periodicTask {
	api := a.newAdminClient()
	return append(machineTasks(a, api), []periodicTask{
		{"certificates", time.Minute, func(context.Context) error { return a.renewCertificates() }},
		{"address", 15 * time.Second, a.associateAPIAddress},
		{"etcd data", 5 * time.Second, m.recordJoined},
		{"etcd volume", volumeInterval, m.newVolumeWatch().watchOnce},
		{"size of the etcd volume", growthInterval, (&volumeGrowth{agent: a}).run},
		{"report", report.Interval, a.newReportPublisher(m).run},
		{"restore", restoreInterval, newRestorer(a).lookAndRestore},
		{"metadata", guardInterval, a.guardMetadata},
		{"registry", time.Minute, func(ctx context.Context) error { return keepRegistry(ctx, a) }},
		{"API server", apiStopInterval, func(context.Context) error { return endAPIStop(a) }},
		{"add-ons", addonInterval, newAddonTask(a, api).run},
		{"add-on channels", addonInterval, newChannelTask(a, api).run},
		{"Karpenter", addonInterval, newKarpenterTask(a, api).run},
		{"repair", repairInterval, newRepairer(a, api).run},
		{
			"registration",
			20 * time.Second,
			func(ctx context.Context) error { return a.ensureNodeRegistered(ctx, api) },
		},
	}...)
}

// machineTasks returns the tasks of a control-plane machine that follow the machines that exist.
func machineTasks(a *Agent, api kube.Client) []periodicTask {
	return []periodicTask{
		{"hosts", 5 * time.Second, a.syncHosts},
		{"nodes", 15 * time.Second, func(ctx context.Context) error { return a.reconcileNodes(ctx, api) }},
		{"restored leases", leaseCleanInterval, (&restoredLeases{agent: a, api: api}).run},
	}
}

// checkReady returns a notReadyError until the kubelet and, on the control plane, the local API
// server are healthy and the API server authorizes requests.
func (a *Agent) checkReady(ctx context.Context) error {
	urls := []string{kubeletHealthURL}
	if a.doc.Role == v1alpha1.RoleControlPlane {
		urls = append(urls, "https://127.0.0.1:"+kube.APIPort+"/readyz")
	}

	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   a.kubernetesTLSConfig(),
		DisableKeepAlives: true,
	}}

	for _, url := range urls {
		body, err := HTTPOpener{Client: client}.Open(ctx, url)
		if err != nil {
			return newNotReadyError("%v", err)
		}

		if err := body.Close(); err != nil {
			return newNotReadyError("%v", err)
		}
	}

	if a.doc.Role == v1alpha1.RoleControlPlane && !a.apiOpen.Load() {
		return newNotReadyError("the API server has not read its authorization rules yet")
	}

	return nil
}

func (a *Agent) kubernetesTLSConfig() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.KubernetesCA))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
}

// newAdminClient returns a client of the local API server in the group system:masters, because it
// must work before RBAC rules exist. Its key stays in memory.
func (a *Agent) newAdminClient() kube.Client {
	leaf := pki.Leaf{
		CN:     "slipway:node:" + a.instance.ID,
		Orgs:   []string{"system:masters"},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    24 * time.Hour,
	}

	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, a.Now)
	conf := a.kubernetesTLSConfig()
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }

	return kube.Client{
		Server: "https://127.0.0.1:" + kube.APIPort,
		HTTP: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: conf, IdleConnTimeout: time.Minute},
		},
	}
}

// newNodeClient returns a client of the API with this node's kubelet certificate.
func (a *Agent) newNodeClient() kube.Client {
	conf := a.kubernetesTLSConfig()
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		certificate := a.Root.Path(kube.PKIDir + "/kubelet-client")
		pair, err := tls.LoadX509KeyPair(certificate+".crt", certificate+".key")
		return &pair, err
	}

	return kube.Client{
		Server: "https://" + a.Boot.API.Internal + ":" + kube.APIPort,
		HTTP: &http.Client{
			Timeout:   15 * time.Second,
			Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true},
		},
	}
}

// serveJoin serves the join endpoint until ctx ends.
func (a *Agent) serveJoin(ctx context.Context) error {
	leaf := pki.Leaf{
		CN:     "slipway-join",
		Usages: []pki.Usage{pki.ServerUsage},
		TTL:    LeafTTL,
		IPs:    []netip.Addr{a.instance.Address},
	}

	addSAN(&leaf, a.Boot.API.Internal)
	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, a.Now)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+join.Port)
	if err != nil {
		return fmt.Errorf("serve the join endpoint: %w", err)
	}

	endpoint := a.newJoinServer()
	server := &http.Server{
		Handler:           endpoint,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		TLSConfig:         joinTLSConfig(pair, endpoint.ClientCAs()),
		ErrorLog:          slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}

	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends Serve
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the join endpoint: %w", err)
	}

	return ctx.Err()
}

// joinTLSConfig returns the TLS settings of the join endpoint. The load balancer's health checks cannot speak TLS 1.3; in
// TLS 1.2 only suites with authenticated encryption are offered.
func joinTLSConfig(pair func() (*tls.Certificate, error), clients *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair() },
		ClientAuth:     tls.VerifyClientCertIfGiven, // a worker that joins has none yet
		ClientCAs:      clients,
	}
}

func (a *Agent) newJoinServer() *join.Server {
	// A request may still be served when the agent takes another document.
	machines := a.ec2Client()
	api := a.newAdminClient()

	return &join.Server{
		CA:          a.bundle.CAs[pki.KubernetesCA],
		Cluster:     a.doc.Cluster,
		WorkerRoles: a.doc.Join.WorkerRoles,
		ClusterID:   a.doc.ClusterID,
		Users:       a.doc.Join.Users,
		STSEndpoint: a.Sign.Endpoint,
		HTTP:        a.HTTP,
		TTL:         NodeTTL,
		Now:         a.Now,
		Log:         a.Log,
		Heartbeats:  &a.heartbeats,
		PassSignal: func(ctx context.Context, m join.Machine, status join.Signal) error {
			return stackSignals{a}.passSignal(ctx, api, m, status)
		},
		ActForMachine: func(ctx context.Context, m join.Machine, action join.LifecycleAction) (bool, error) {
			return actForMachine(ctx, a.Scaling, m, action)
		},
		Announce: func(ctx context.Context, m join.Machine) error {
			ctx, cancel := context.WithTimeout(ctx, announceTimeout)
			defer cancel()

			return announceMachine(ctx, api, m)
		},
		CheckLaunch: newLaunchCheck(a, machines).check,
		FindMachine: func(ctx context.Context, id string) (join.Machine, bool, error) {
			m, found, err := machines.FindMachine(ctx, id)
			return joinMachine(m), found, err
		},
	}
}

// announceTimeout limits how long a certificate waits for an API server that does not answer.
const announceTimeout = 2 * time.Second
