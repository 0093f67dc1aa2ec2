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
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// periodicTask is something the agent does again and again.
type periodicTask struct {
	name     string
	interval time.Duration
	run      func(context.Context) error
}

// runPeriodicTasks runs the chores of the machine's role until ctx ends.
func (a *Agent) runPeriodicTasks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	chores := a.workerTasks()
	if a.doc.Role == v1alpha1.RoleControlPlane {
		m, err := a.newEtcdMember()
		if err != nil {
			return err
		}

		chores = a.controlPlaneTasks(m)
		group.Go(func() error { return a.serveJoin(ctx) })
	}

	for _, c := range chores {
		group.Go(func() error { return a.repeatTask(ctx, c) })
	}

	group.Go(func() error {
		if err := a.retryUntilReady(ctx, "ready", func() error { return a.checkReady(ctx) }); err != nil {
			return err
		}

		return a.signalSuccess(ctx)
	})

	return group.Wait()
}

// repeatTask does a chore until ctx ends. What fails or has to wait is tried again after a second, then after twice as long
// each time up to the chore's own pause. Failures go to the journal, each once.
func (a *Agent) repeatTask(ctx context.Context, c periodicTask) error {
	last := ""
	soon := time.Second
	for {
		once, cancel := context.WithTimeout(ctx, time.Minute)
		err := c.run(once)
		cancel()
		pause := min(soon, c.interval)
		soon = 2 * pause
		var wait notReadyError

		switch {
		case err == nil:
			last = ""
			soon = time.Second
			pause = c.interval

		case errors.As(err, &wait), err.Error() == last, ctx.Err() != nil:
		default:
			last = err.Error()
			a.Log.Warn("will be tried again", slog.String("chore", c.name), slog.Any("error", err))
		}

		if err := a.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (a *Agent) workerTasks() []periodicTask {
	return []periodicTask{
		{"certificates", time.Minute, a.renewNodeCertificates},
		{
			"registration",
			20 * time.Second,
			func(ctx context.Context) error { return a.ensureNodeRegistered(ctx, a.newNodeClient()) },
		},
	}
}

func (a *Agent) controlPlaneTasks(m *etcdMember) []periodicTask {
	api := a.newAdminClient()
	return []periodicTask{
		{"certificates", time.Minute, func(context.Context) error { return a.renewCertificates() }},
		{"hosts", 5 * time.Second, a.syncHosts},
		{"address", 15 * time.Second, a.associateAPIAddress},
		{"etcd data", 5 * time.Second, m.recordJoined},
		{
			"etcd member",
			10 * time.Second,
			func(ctx context.Context) error { return m.publishLease(ctx, api) },
		},
		{"add-ons", 20 * time.Second, func(ctx context.Context) error { return a.applyAddons(ctx, api) }},
		{"nodes", 15 * time.Second, func(ctx context.Context) error { return a.reconcileNodes(ctx, api) }},
		{
			"registration",
			20 * time.Second,
			func(ctx context.Context) error { return a.ensureNodeRegistered(ctx, api) },
		},
	}
}

// checkReady waits until this machine does its work: the kubelet is healthy, and so is its own API server.
func (a *Agent) checkReady(ctx context.Context) error {
	urls := []string{"http://127.0.0.1:10248/healthz"}
	if a.doc.Role == v1alpha1.RoleControlPlane {
		urls = append(urls, "https://127.0.0.1:"+kube.APIPort+"/readyz")
	}

	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: a.kubernetesTLSConfig(), DisableKeepAlives: true,
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

	return nil
}

func (a *Agent) kubernetesTLSConfig() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.KubernetesCA))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
}

// newAdminClient uses this machine's own API server, as a member of system:masters: it must work before any rights are
// there. Its key never touches a disk.
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

// newNodeClient is this machine as a node, with the kubelet's certificate.
func (a *Agent) newNodeClient() kube.Client {
	conf := a.kubernetesTLSConfig()
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		at := a.Root.Path(kube.PKIDir + "/kubelet-client")
		pair, err := tls.LoadX509KeyPair(at+".crt", at+".key")
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

func (a *Agent) applyAddons(ctx context.Context, api kube.Client) error {
	n := a.doc.Network
	objects, err := addon.Render(addon.Values{
		PodCIDR:     n.PodCIDR,
		ServiceCIDR: n.ServiceCIDR,
		DNSIP:       n.DNSIP,
		DNSDomain:   n.DNSDomain,
		Images:      a.doc.Images,
		AdminGroup:  pki.AdminGroup,
	})
	if err != nil {
		return err
	}

	if _, err := api.Do(ctx, http.MethodGet, "/readyz", "", nil); err != nil {
		return newNotReadyError("%v", err)
	}

	return addon.Apply(ctx, api, objects)
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

	server := &http.Server{
		Handler:           a.newJoinServer(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS13,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair() },
		},
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}

	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends Serve
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the join endpoint: %w", err)
	}

	return ctx.Err()
}

func (a *Agent) newJoinServer() *join.Server {
	return &join.Server{
		CA:          a.bundle.CAs[pki.KubernetesCA],
		WorkerRoles: a.doc.Join.WorkerRoles,
		STSEndpoint: a.Sign.Endpoint,
		HTTP:        a.HTTP,
		TTL:         LeafTTL,
		Now:         a.Now,
		Log:         a.Log,
		FindMachine: func(ctx context.Context, id string) (join.Machine, bool, error) {
			m, found, err := a.ec2Client().FindMachine(ctx, id)
			return join.Machine{
				ID:      m.ID,
				Account: m.Account,
				Name:    m.Name,
				Address: m.Address,
				State:   m.State,
				Role:    m.Role,
				Group:   m.Group,
			}, found, err
		},
	}
}

// publishLease says in the API how this machine's etcd member is, and promotes it once it has caught up.
func (m *etcdMember) publishLease(ctx context.Context, api kube.Client) error {
	manager := m.agent.newEtcdManager()
	note := map[string]string{"slipway.dev/slot": m.slot.Name, "slipway.dev/instance": m.agent.instance.ID}
	s, err := manager.Status(ctx, etcd.ClientURL)
	if err != nil {
		note["slipway.dev/healthy"], note["slipway.dev/reason"] = "false", err.Error()
	} else {
		healthy := manager.Healthy(ctx, etcd.ClientURL) && len(s.Errors) == 0
		note["slipway.dev/healthy"] = strconv.FormatBool(healthy)
		note["slipway.dev/learner"] = strconv.FormatBool(s.Learner)
		note["slipway.dev/member-id"] = strconv.FormatUint(s.MemberID, 16)
		note["slipway.dev/raft-index"] = strconv.FormatUint(s.RaftIndex, 10)
		note["slipway.dev/db-size"] = strconv.FormatInt(s.DBSize, 10)
		if !healthy {
			note["slipway.dev/reason"] = fmt.Sprintf("no linearizable read, or alarms: %v", s.Errors)
		}

		if s.Learner {
			m.promoteLearner(ctx, manager, s.MemberID)
		}
	}

	return lease{"slipway-" + m.slot.Member, m.agent.instance.ID, note, m.agent.Now()}.applyTo(ctx, api)
}

func (m *etcdMember) promoteLearner(ctx context.Context, manager etcd.Manager, id uint64) {
	if err := manager.PromoteLearner(ctx, m.slot.Name, id); err != nil {
		m.agent.Log.Info("learner is not promoted yet", slog.Any("error", err))
		return
	}

	m.agent.Log.Info("learner is promoted", slog.String("member", m.slot.Member))
}
