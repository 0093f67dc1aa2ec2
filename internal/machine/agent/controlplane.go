// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

func (a *Agent) ec2Client() EC2Client {
	return EC2Client{EC2: a.EC2, Cluster: a.doc.Cluster, ClusterID: a.doc.ClusterID}
}

// convergeControlPlane converges a control-plane machine. It depends on no other machine until etcd
// needs its quorum.
func (a *Agent) convergeControlPlane(ctx context.Context) error {
	m, err := a.newEtcdMember()
	if err != nil {
		return a.reportStageEnd("fetch", err)
	}

	if a.Boot.API.Elastic {
		associate := func() error { return a.associateAPIAddress(ctx) }
		if err := a.retryUntilReady(ctx, "address", associate); err != nil {
			return err
		}
	}

	if err := takeNodeName(ctx, a); err != nil {
		return err
	}

	waiting := newStandby(a, m.slot.Name)
	pulled := make(chan struct{})
	pullCtx, stopPulls := context.WithCancel(ctx)
	var pulls sync.WaitGroup
	defer pulls.Wait() // the next attempt replaces a.doc, which pullImages reads
	defer stopPulls()

	// Another machine of the slot may have the volume. Everything else is prepared in the meantime.
	concurrent, concurrentCtx := errgroup.WithContext(ctx)
	concurrent.Go(func() error { return waiting.takeVolume(concurrentCtx, m, pulled) })
	concurrent.Go(func() error {
		if err := waiting.prepare(concurrentCtx); err != nil {
			return err
		}

		pulls.Go(func() {
			defer close(pulled)
			pullImages(pullCtx, a, "pause", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		})

		return nil
	})

	if err := concurrent.Wait(); err != nil {
		return err
	}

	if err := a.startMember(ctx, m); err != nil {
		return err
	}

	<-pulled
	if err := a.runStage("control-plane", a.writeStaticPods); err != nil {
		return err
	}

	waiting.withdraw(ctx)

	return nil
}

// startMember takes steps of etcd's start until the member answers with a quorum. Meanwhile the machine takes part in a recovery
// of a quorum that is lost.
func (a *Agent) startMember(ctx context.Context, m *etcdMember) error {
	recoveryCtx, stop := context.WithCancel(ctx)
	var recovery sync.WaitGroup
	defer recovery.Wait() // the periodic tasks continue it
	defer stop()
	recovery.Go(func() { _ = m.keepRecovered(recoveryCtx) }) // ends with the context

	return retryEvery(ctx, a, stageRetry{name: "etcd", pause: m.etcdWait(), do: func() error {
		a.etcdData.Lock()
		defer a.etcdData.Unlock()

		return a.convergeEtcd(ctx, m)
	}})
}

// startControlPlane starts the services, and lets static pods that run already read changed files. On a new machine
// there are none.
func (a *Agent) startControlPlane(ctx context.Context, changed map[string]bool) error {
	if err := a.startServices(ctx, changed); err != nil {
		return err
	}

	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL
	for pod, command := range kube.StaticPodCommands(c) {
		if !isReadBy(pod, changed) && !mustRestart(a, pod) {
			continue
		}

		if err := a.endProcess(ctx, command); err != nil {
			return fmt.Errorf("restart %s: %w", pod, err)
		}
	}

	return nil
}

// endProcess ends the process with this command line, if there is one. The kubelet starts a static pod again.
func (a *Agent) endProcess(ctx context.Context, command []string) error {
	p, found := findProcess(a.Root, command)
	if !found {
		return nil
	}

	_, err := a.Run.Run(ctx, "kill", "-TERM", strconv.Itoa(p.pid))

	return err
}

// convergeEtcd takes one step of etcd's start. It succeeds when the member answers with a quorum.
// API servers start only then: an API server without etcd exits, and the kubelet restarts it with
// increasing delays.
func (a *Agent) convergeEtcd(ctx context.Context, m *etcdMember) error {
	// A failure is not fatal: etcd may work with the previous addresses, and must not wait for EC2.
	if err := a.syncHosts(ctx); err != nil {
		a.Log.Warn(
			"cannot update the addresses of etcd members; keeping the previous ones",
			slog.Any("error", err),
		)
	}

	if err := m.finishStepAside(ctx, "continued: it differs from that of the majority"); err != nil {
		return err
	}

	if err := m.decideAndAct(ctx); err != nil {
		return err
	}

	manager := a.newEtcdManager()
	if manager.Healthy(ctx, etcd.ClientURL) {
		m.noteTakeOver()
		return nil
	}

	if s, err := manager.Status(ctx, etcd.ClientURL); err == nil && s.Learner {
		m.promoteLearner(ctx, manager, s)
		return newNotReadyError("etcd is a learner and has not caught up yet")
	}

	if m.wasRemoved(ctx, manager) {
		return waitForNextDecision(m.setAsideLeft(ctx), "the data is of a member that was removed")
	}

	return newNotReadyError("etcd has started but has no quorum yet")
}

// pullImages pulls images of the node document by their names, as soon as containerd runs: those of the control plane while
// etcd waits for its quorum. If it fails, the kubelet pulls them.
func pullImages(ctx context.Context, a *Agent, names ...string) {
	if waitForContainerd(ctx, a) != nil {
		return
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error {
			ref := a.doc.Images[name]
			if err := a.pullImage(ctx, ref); err != nil {
				a.Log.Warn(
					"cannot pull image in advance; the kubelet will pull it",
					slog.String("image", ref),
					slog.Any("error", err),
				)
			}

			return nil
		})
	}

	_ = group.Wait() // the functions return nil
}

// pullImage pulls one image into the kubelet's namespace of containerd.
func (a *Agent) pullImage(ctx context.Context, ref string) error {
	if registry, ok := ecraddress.Parse(ref); ok {
		return pullPrivateImage(ctx, a, registry, ref)
	}

	_, err := a.Run.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "pull",
		"--hosts-dir", "/etc/containerd/certs.d", ref)
	if err == nil {
		return nil
	}

	// ctr prints its progress before the error, which differs with each attempt.
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")

	return fmt.Errorf("pull image %s: %s", ref, lines[len(lines)-1])
}

// writeStaticPods writes the static pods of the control plane, which the kubelet starts, unless the API server is stopped on purpose.
func (a *Agent) writeStaticPods() error {
	a.apiStops.Lock()
	defer a.apiStops.Unlock()
	if readAPIStop(a).lasts(a.Now()) {
		return nil
	}

	return writeStaticPodFiles(a)
}

// writeStaticPodFiles is writeStaticPods while no stop of the API server can begin.
func writeStaticPodFiles(a *Agent) error {
	pods, err := a.staticPodFiles()
	if err != nil {
		return err
	}

	_, err = a.writeFiles(pods)

	return err
}

// staticPodFiles returns the static pods of the control plane.
func (a *Agent) staticPodFiles() ([]File, error) {
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL
	pods, err := kube.StaticPods(c)
	if err != nil {
		return nil, err
	}

	out := make([]File, 0, len(pods))
	for _, f := range pods {
		out = append(out, File{Path: f.Path, Body: f.Body, Mode: 0o600})
	}

	return out, nil
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

// mountEtcdVolume mounts the member's volume. If it is already mounted and has data, failures of
// EC2 and S3 are ignored.
func (a *Agent) mountEtcdVolume(ctx context.Context, m *etcdMember) error {
	if err := ensureEtcdUser(ctx, a.Root, a.Run); err != nil {
		return err
	}

	err := m.mountVolume(ctx)
	if err := m.checkVolumeWritable(ctx); err != nil {
		return err
	}

	if mount, mountErr := readVolumeMount(a.Root); mountErr == nil && mount.mounted && m.hasData() {
		return nil
	}

	return err
}

// loadSecrets downloads and decrypts the CAs' private keys. They stay in memory; only leaf keys are
// written to the tmpfs.
func (a *Agent) loadSecrets(ctx context.Context) error {
	s, err := a.Store(a.doc.Store.URL)
	if err != nil {
		return err
	}

	t := a.doc.Trust
	a.bundle, err = pki.LoadMachineBundle(ctx, s, a.Sealer, a.doc.Cluster, pki.PublicBundle{
		ServiceAccountKeys: t.ServiceAccountKeys,
		CAs: map[string]string{
			pki.KubernetesCA: t.KubernetesCA,
			pki.EtcdPeerCA:   t.EtcdPeerCA,
			pki.EtcdClientCA: t.EtcdClientCA,
			pki.FrontProxyCA: t.FrontProxyCA,
		},
	})
	if err != nil {
		return err
	}

	a.former = &formerKeys{}

	return a.former.load(ctx, s, a.Sealer, a.doc.Cluster)
}

// renewCertificates issues the leaf certificates that are due. All components reload their
// certificate files.
func (a *Agent) renewCertificates() error {
	err := issuePairs(a.Root, a.bundle, controlPlanePairs(a.doc, a.Boot, a.instance, etcdUID), a.Now())
	return err
}

func (a *Agent) writeControlPlane() (map[string]bool, error) {
	if err := a.Root.MakeReadableDir(etcd.PKIDir, etcdUID); err != nil {
		return nil, err
	}

	for _, component := range kube.StaticPodNames() {
		if err := a.Root.MakeReadableDir(kube.ComponentDir(component), kube.UserID(component)); err != nil {
			return nil, err
		}
	}

	if err := a.Root.MakeDir(kube.LogDir, 0o700, kube.UserID(kube.APIServer)); err != nil {
		return nil, err
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
	key, err := deriveSecretsKey(a.bundle.Encryption)
	if err != nil {
		return nil, err
	}

	c.EncryptionKey = key
	if c.FormerKeys, err = a.former.derive(); err != nil {
		return nil, err
	}

	files, err := hostFiles(c, requiredModules(a.doc.Network), a.sysctls())
	if err != nil {
		return nil, err
	}

	keys, err := a.trustFiles()
	if err != nil {
		return nil, err
	}

	files = append(files, keys...)
	for _, f := range kube.APIServerConfigFiles(c) {
		files = append(files, File{
			Path: f.Path,
			Body: f.Body,
			Mode: 0o600,
			UID:  kube.UserID(kube.APIServer),
		})
	}

	admin := kube.EmptyAdminKubeconfig(c.APIServer)
	files = append(files, File{Path: kube.KubeconfigPath("admin"), Body: admin, Mode: 0o600})
	for _, component := range []string{kube.ControllerManager, kube.Scheduler} {
		name := strings.TrimPrefix(component, "kube-")
		own := File{
			Path: kube.ComponentKubeconfig(component),
			Body: kube.CertificateKubeconfig(c.APIServer, kube.ComponentDir(component), name),
			Mode: 0o600,
			UID:  kube.UserID(component),
		}
		files = append(files, own, File{Path: kube.KubeconfigPath(name), Body: own.Body, Mode: 0o600})
	}

	return files, nil
}

// trustFiles returns the CA certificates and the service account keys, for the tmpfs.
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
	kubernetes := File{Path: "kubernetes-ca.crt", Body: []byte(t.KubernetesCA), Mode: 0o644}
	frontProxy := File{Path: "front-proxy-ca.crt", Body: []byte(t.FrontProxyCA), Mode: 0o644}
	signing := File{Path: "service-account.key", Body: key, Mode: 0o600}
	out := []File{a.authorityFile()} // the kubelet's
	out = append(out, filesOf(kube.Scheduler, kubernetes, frontProxy)...)
	out = append(out, filesOf(kube.ControllerManager, kubernetes, frontProxy, controllerManagerKey(a.kubeConfig(), signing))...)
	out = append(out, filesOf(
		kube.APIServer, kubernetes, frontProxy, signing,
		File{Path: "etcd-client-ca.crt", Body: []byte(t.EtcdClientCA), Mode: 0o644},
		File{Path: "service-account.pub", Body: public, Mode: 0o644},
	)...)

	return append(out, []File{
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
	}...), nil
}

// controllerManagerKey returns the file of the key with which the controller manager signs tokens of service accounts. It is
// empty if the manifest leaves that key to the API server, so that a running machine that had the key has it no more.
func controllerManagerKey(c kube.Config, signing File) File {
	if !c.HasSigningKey() {
		signing.Body = nil
	}

	return signing
}

// filesOf returns the files with their names in the directory of a component, to whose user they belong.
func filesOf(component string, files ...File) []File {
	out := slices.Clone(files)
	for i := range out {
		out[i].Path = kube.ComponentDir(component) + "/" + out[i].Path
		out[i].UID = kube.UserID(component)
	}

	return out
}

// componentDirs returns the directories of the components' own keys.
func componentDirs() []string {
	var out []string
	for _, component := range kube.StaticPodNames() {
		out = append(out, kube.ComponentDir(component))
	}

	return out
}
