// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

func (a *Agent) ec2Client() EC2Client { return EC2Client{EC2: a.EC2, Cluster: a.doc.Cluster} }

// convergeControlPlane converges a control-plane machine. It needs no other machine until etcd looks for its quorum.
func (a *Agent) convergeControlPlane(ctx context.Context) error {
	m, err := a.newEtcdMember()
	if err != nil {
		return a.reportStageEnd("fetch", err)
	}

	if a.Boot.API.Elastic {
		if err := a.retryUntilReady(ctx, "address", func() error { return a.associateAPIAddress(ctx) }); err != nil {
			return err
		}
	}

	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() error { return a.downloadFiles(bothCtx) })
	both.Go(func() error {
		return a.retryUntilReady(bothCtx, "volume", func() error { return a.mountEtcdVolume(bothCtx, m) })
	})
	both.Go(func() error { return a.runStage("secrets", func() error { return a.loadSecrets(bothCtx) }) })
	if err := both.Wait(); err != nil {
		return err
	}

	if err := a.prepareHost(); err != nil {
		return err
	}

	var changed map[string]bool
	err = a.runStage("write", func() error {
		changed, err = a.writeControlPlane()
		return err
	})
	if err != nil {
		return err
	}

	if err := a.runStage("start", func() error { return a.startServices(ctx, changed) }); err != nil {
		return err
	}

	pulls := make(chan struct{})
	pullCtx, stop := context.WithCancel(ctx)
	go func() { defer close(pulls); a.pullImages(pullCtx) }()
	defer func() { stop(); <-pulls }() // the next try reads the document anew
	if err := a.retryUntilReady(ctx, "etcd", func() error { return a.convergeEtcd(ctx, m) }); err != nil {
		return err
	}

	<-pulls

	return a.runStage("control-plane", a.writeStaticPods)
}

// convergeEtcd takes one step and is done when the member answers with a quorum behind it. Only then an API server may
// start: one that finds no etcd ends, and the kubelet waits longer and longer before it starts it again.
func (a *Agent) convergeEtcd(ctx context.Context, m *etcdMember) error {
	// With the addresses of before etcd may well work; without EC2 it must not wait.
	if err := a.syncHosts(ctx); err != nil {
		a.Log.Warn("addresses of members are as before", slog.Any("error", err))
	}

	if err := m.decideAndAct(ctx); err != nil {
		return err
	}

	manager := a.newEtcdManager()
	if manager.Healthy(ctx, etcd.ClientURL) {
		return nil
	}

	if s, err := manager.Status(ctx, etcd.ClientURL); err == nil && s.Learner {
		m.promoteLearner(ctx, manager, s.MemberID)
		return newNotReadyError("etcd is a learner that catches up")
	}

	return newNotReadyError("etcd is started and has no quorum yet")
}

// pullImages brings the control plane's images while etcd looks for its quorum. What fails here the kubelet pulls itself.
func (a *Agent) pullImages(ctx context.Context) {
	for range 60 {
		if a.Root.Exists("/run/containerd/containerd.sock") {
			break
		}

		if err := a.Wait(ctx, 500*time.Millisecond); err != nil {
			return
		}
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{"pause", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		group.Go(func() error {
			ref := a.doc.Images[name]
			if _, err := a.Run.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "pull", "--hosts-dir", "/etc/containerd/certs.d", ref); err != nil {
				a.Log.Warn("image is left to the kubelet", slog.String("image", ref), slog.Any("error", err))
			}

			return nil
		})
	}

	_ = group.Wait() // always nil
}

// writeStaticPods hands the control plane to the kubelet.
func (a *Agent) writeStaticPods() error {
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL
	pods, err := kube.StaticPods(c)
	if err != nil {
		return err
	}

	for _, f := range pods {
		if _, err := a.Root.Write(File{Path: f.Path, Body: f.Body, Mode: 0o600}); err != nil {
			return err
		}
	}

	return nil
}

func (a *Agent) newEtcdMember() (*etcdMember, error) {
	slot, ok := a.doc.Slot(a.Boot.Slot)
	if !ok {
		return nil, newNotReadyError("the document has no slot %q", a.Boot.Slot)
	}

	s, err := a.Store(a.doc.Store.URL)
	if err != nil {
		return nil, err
	}

	return &etcdMember{agent: a, store: s, slot: slot}, nil
}

// mountEtcdVolume brings the member's volume. One that is mounted and holds data needs neither EC2 nor S3.
func (a *Agent) mountEtcdVolume(ctx context.Context, m *etcdMember) error {
	if err := ensureEtcdUser(ctx, a.Root, a.Run); err != nil {
		return err
	}

	err := m.mountVolume(ctx)
	if here, mountErr := isEtcdVolumeMounted(a.Root); mountErr == nil && here && m.hasData() {
		return nil
	}

	return err
}

// loadSecrets opens the CAs' keys. They are held in memory; what lies on the tmpfs is what the components read.
func (a *Agent) loadSecrets(ctx context.Context) error {
	s, err := a.Store(a.doc.Store.URL)
	if err != nil {
		return err
	}

	t := a.doc.Trust
	a.bundle, err = pki.LoadMachineBundle(ctx, s, a.Sealer, a.doc.Cluster, pki.PublicBundle{
		ServiceAccountKeys: t.ServiceAccountKeys,
		CAs: map[string]string{
			pki.KubernetesCA: t.KubernetesCA, pki.EtcdPeerCA: t.EtcdPeerCA, pki.EtcdClientCA: t.EtcdClientCA, pki.FrontProxyCA: t.FrontProxyCA,
		},
	})

	return err
}

// renewCertificates renews what is due. Every reader of them reads them again by itself.
func (a *Agent) renewCertificates() error {
	_, err := issuePairs(a.Root, a.bundle, controlPlanePairs(a.doc, a.Boot, a.instance, etcdUID), a.Now())
	return err
}

func (a *Agent) writeControlPlane() (map[string]bool, error) {
	for _, d := range []struct {
		path string
		uid  int
	}{{etcd.PKIDir, etcdUID}, {kube.LogDir, 0}} {
		if err := a.Root.MakeDir(d.path, 0o700, d.uid); err != nil {
			return nil, err
		}
	}

	if err := a.renewCertificates(); err != nil {
		return nil, err
	}

	files, err := a.controlPlaneFiles()
	if err != nil {
		return nil, err
	}

	return a.writeFiles(files)
}

func (a *Agent) controlPlaneFiles() ([]File, error) {
	c := a.kubeConfig()
	var err error
	if c.EncryptionKey, err = a.bundle.Encryption.Derive("slipway encryption-key of secrets v1", 32); err != nil {
		return nil, err
	}

	files, err := hostFiles(c)
	if err != nil {
		return nil, err
	}

	keys, err := a.trustFiles()
	if err != nil {
		return nil, err
	}

	files = append(files, keys...)
	for _, f := range kube.APIServerConfigFiles(c) {
		files = append(files, File{Path: f.Path, Body: f.Body, Mode: 0o600})
	}

	for _, name := range []string{"controller-manager", "scheduler"} {
		files = append(
			files,
			File{
				Path: kube.ConfigDir + "/" + name + ".kubeconfig",
				Body: kube.CertificateKubeconfig(c.APIServer, name),
				Mode: 0o600,
			},
		)
	}

	return files, nil
}

// trustFiles are the CAs' certificates and the service-account keys, on the tmpfs.
func (a *Agent) trustFiles() ([]File, error) {
	key, err := a.bundle.ServiceAccount.PEM()
	if err != nil {
		return nil, err
	}

	public := []byte(a.doc.Trust.ServiceAccountKeys)
	if len(public) == 0 {
		if public, err = a.bundle.ServiceAccount.PublicPEM(); err != nil {
			return nil, err
		}
	}

	t := a.doc.Trust

	return []File{
		{Path: kube.PKIDir + "/kubernetes-ca.crt", Body: []byte(t.KubernetesCA), Mode: 0o644},
		{Path: kube.PKIDir + "/etcd-client-ca.crt", Body: []byte(t.EtcdClientCA), Mode: 0o644},
		{Path: kube.PKIDir + "/front-proxy-ca.crt", Body: []byte(t.FrontProxyCA), Mode: 0o644},
		{Path: kube.PKIDir + "/service-account.key", Body: key, Mode: 0o600},
		{Path: kube.PKIDir + "/service-account.pub", Body: public, Mode: 0o644},
		{
			Path: etcd.PKIDir + "/client-ca.crt",
			Body: []byte(t.EtcdClientCA),
			Mode: 0o644,
			UID:  etcdUID,
		},
		{
			Path: etcd.PKIDir + "/peer-ca.crt",
			Body: []byte(t.EtcdPeerCA),
			Mode: 0o644,
			UID:  etcdUID,
		},
	}, nil
}

// syncHosts keeps the members' names in step with EC2. While EC2 does not answer the last known addresses stay.
func (a *Agent) syncHosts(ctx context.Context) error {
	machines, err := a.ec2Client().ListControlPlane(ctx)
	if err != nil {
		return err
	}

	_, err = WriteHostsFile(
		a.Root,
		a.doc.Slots,
		SlotAddresses(machines, a.Boot.Slot, a.instance.Address.String()),
	)

	return err
}
