// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

func testDocument(t *testing.T, slots int, bundle pki.Bundle) node.Document {
	t.Helper()
	c := v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: "demo"}}
	c.Spec.KubernetesVersion = "1.36.3"
	c.Spec.CloudProvider.AWS.Region = "us-east-1"
	c.Spec.Networking = v1alpha1.Networking{
		NetworkCIDR: "10.80.0.0/16", PodCIDR: "10.244.0.0/16", ServiceClusterIPRange: "10.96.0.0/16", DNSDomain: "cluster.local",
	}
	g := v1alpha1.InstanceGroup{Metadata: v1alpha1.Metadata{Name: "control-plane"}}
	g.Spec = v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleControlPlane, MinSize: &slots, MaxSize: &slots}
	g.Spec.Taints = []string{"node-role.kubernetes.io/control-plane=:NoSchedule"}
	images := map[string]string{}
	for _, name := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns", "flannel", "flannel-cni-plugin", "pause",
	} {
		images[name] = imageAt(name + ":v1")
	}
	public, err := bundle.PublicPart()
	if err != nil {
		t.Fatal(err)
	}
	d, err := node.BuildDocument(node.DocumentInput{
		Cluster: c, Groups: []v1alpha1.InstanceGroup{g}, Group: g, Images: images, StoreURL: "s3://bucket/state", WorkerRoles: map[string]string{"workers": "demo-worker"},
		Trust: node.TrustBundle{
			KubernetesCA: public.CAs[pki.KubernetesCA], EtcdPeerCA: public.CAs[pki.EtcdPeerCA], EtcdClientCA: public.CAs[pki.EtcdClientCA],
			FrontProxyCA: public.CAs[pki.FrontProxyCA], ServiceAccountKeys: public.ServiceAccountKeys,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func testBundle(t *testing.T) pki.Bundle {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	b, err := pki.EnsureBundle(t.Context(), store.NewFileStore(t.TempDir()), store.NewAgeSealer(id), "demo", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testAgent returns an agent in a temporary root, with real keys and no cloud.
func testAgent(t *testing.T) *Agent {
	t.Helper()
	bundle := testBundle(t)
	return &Agent{
		Boot:   node.BootConfig{Cluster: "demo", Group: "control-plane", Slot: "a", API: node.APIEndpoints{Internal: "internal.example", Public: "127.77.0.1"}},
		Root:   &HostFS{Dir: t.TempDir()},
		Log:    slog.New(slog.DiscardHandler),
		Report: &Reporter{Open: func() (io.WriteCloser, error) { return nil, errors.New("no console") }, Log: slog.New(slog.DiscardHandler), Now: time.Now},
		Now:    time.Now, Wait: sleep.For,
		doc: testDocument(t, 1, bundle), bundle: bundle,
		instance: Instance{
			ID: "i-0123456789abcdef0", Zone: "us-east-1a", Type: "t3.large", Name: "ip-10-80-0-4.ec2.internal",
			Address: netip.MustParseAddr("127.0.0.1"), MemoryMiB: 8192, CPUs: 2,
		},
	}
}

// mapped replaces all machine paths by paths below the temporary root, and all ports by free ones.
type mapped struct {
	*strings.Replacer
	api string
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return out
}

func mapMachine(t *testing.T, root string) mapped {
	t.Helper()
	p := freePorts(t, 4)
	return mapped{strings.NewReplacer(
		"/run/slipway", root+"/run/slipway", "/etc/kubernetes", root+"/etc/kubernetes", "/var/log/kubernetes", root+"/var/log/kubernetes",
		"/var/lib/slipway", root+"/var/lib/slipway", "https://0.0.0.0:2379", "https://127.0.0.1:"+p[1], "https://0.0.0.0:2380", "https://127.0.0.1:"+p[2],
		"127.0.0.1:2379", "127.0.0.1:"+p[1], "127.0.0.1:2381", "127.0.0.1:"+p[3], "127.0.0.1:6443", "127.0.0.1:"+p[0], "port=6443", "port="+p[0],
		"etcd-a.demo.internal:2380", "127.0.0.1:"+p[2], "etcd-a.demo.internal:2379", "127.0.0.1:"+p[1],
	), p[0]}
}

// run runs a program until the test ends.
func run(t *testing.T, name, bin string, args, env []string) *os.Process {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Args[0] = name
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text := out.String()
			t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return cmd.Process
}

func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// TestRealControlPlane runs the real programs with the flags, files, and certificates of a machine,
// applies the add-ons, and checks the result.
func TestRealControlPlane(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, as the agent does")
	}
	kubernetes, etcdBin := assettest.Program(t, "kubernetes", "bin/kubernetes"), assettest.Program(t, "etcd", "bin/etcd")
	a := testAgent(t)
	people := addUsers(t, a)
	a.doc.KubeControllerManager.ServiceAccountTokenSecrets = v1alpha1.TokenSecretsDisabled // as new clusters have it
	if _, err := a.writeControlPlane(); err != nil {
		t.Fatal(err)
	}
	m := mapMachine(t, a.Root.Dir)
	rewrite(t, filepath.Join(a.Root.Dir, "etc/kubernetes"), m)
	rewrite(t, filepath.Join(a.Root.Dir, "run/slipway"), m)
	people.serve(t, a)
	slot, _ := a.doc.Slot("a")
	me := &etcdMember{agent: a, slot: slot}
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL
	args := func(flags []string, more ...string) []string {
		return strings.Split(m.Replace(strings.Join(append(flags, more...), "\n")), "\n")
	}
	env := strings.Split(strings.TrimSpace(m.Replace(string(etcd.RenderEnvironment(etcd.StartOptions{Members: me.initialCluster(), Token: "t", NewCluster: true, AllowEmptyData: true})))), "\n")
	env = append(env, strings.Split(strings.TrimSpace(string(etcd.RenderSettings(etcd.Config{}))), "\n")...)
	run(t, "etcd", etcdBin, args(etcd.Flags(etcd.Config{Name: slot.Member, Host: slot.Host, PeerHosts: peerHosts(a.doc)})), env)
	server := args(kube.APIServerFlags(c))
	server[slices.Index(server, "--advertise-address=127.0.0.1")] = "--advertise-address=" + realAddress
	first := run(t, "kube-apiserver", kubernetes, server, nil)
	ports := freePorts(t, 2)
	run(t, "kube-controller-manager", kubernetes, args(kube.ControllerManagerFlags(c), "--secure-port="+ports[0]), nil)
	run(t, "kube-scheduler", kubernetes, args(kube.SchedulerFlags(), "--secure-port="+ports[1]), nil)

	api := a.newAdminClient()
	api.Server = "https://127.0.0.1:" + m.api
	eventually(t, "API ready", func() error { _, err := api.Do(t.Context(), http.MethodGet, "/readyz", "", nil); return err })
	eventually(t, "add-ons applied", func() error { return newAddonTask(a, api).run(t.Context()) })
	checkSecondApply(t, a, api)
	checkAddonElection(t, a, api)
	checkAddonUpdate(t, a, api)
	checkControllers(t, api)
	checkTokenSecrets(t, api)
	checkFormerTokens(t, a, api)
	checkAnonymous(t, a, api.Server)
	people.check(t, a, api.Server)
	checkEncrypted(t, a, api, m)
	checkStrangersOfEtcd(t, m)
	checkNodeDrain(t, a, api)
	checkNodeAttacks(t, a, api)
	checkGhostAttacks(t, a, api)

	port := freePorts(t, 1)[0]
	next := slices.Clone(server)
	next[slices.Index(next, "--secure-port="+m.api)] = "--secure-port=" + port
	run(t, "kube-apiserver", kubernetes, next, nil)
	checkStartingServer(t, a, "https://127.0.0.1:"+port)
	other := api
	other.Server = "https://127.0.0.1:" + port
	checkEndpointsAreKept(t, other, first)

	checkFormerKey(t, a, m, next)
	moved, err := a.newEtcdManager().YieldLeadership(t.Context(), "a", m.Replace(etcd.ClientURL))
	if moved || !errors.Is(err, etcd.ErrNoSuccessor) {
		t.Errorf("the only member gave up the leadership: %v, %v", moved, err)
	}
}

// checkStartingServer asks a starting API server for what an administrator may read. It is refused until the
// server has read its rules, and never after the agent takes the server for ready.
func checkStartingServer(t *testing.T, a *Agent, server string) {
	t.Helper()
	administrator := clientOf(t, a, pki.Leaf{CN: "alice", Orgs: []string{pki.AdminGroup}, Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour})
	check := apiServerCheck{api: a.newAdminClient(), address: realAddress}
	check.api.Server = server
	refusedBefore, after := 0, 0
	for deadline := time.Now().Add(90 * time.Second); after < 20 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ready := check.readiness(t.Context()) != apiStarting
		status := 0
		if resp, err := administrator.Get(server + "/api/v1/nodes"); err == nil {
			status = resp.StatusCode
			_ = resp.Body.Close()
		}
		switch {
		case ready:
			after++
			if status != http.StatusOK {
				t.Errorf("a server that is ready answers an administrator %d", status)
			}
		case status == http.StatusForbidden:
			refusedBefore++
		}
	}
	t.Logf("refused an administrator %d times before it was ready", refusedBefore)
	if after == 0 {
		t.Error("the server did not become ready")
	}
}

// clientOf returns a client with a certificate of its own.
func clientOf(t *testing.T, a *Agent, leaf pki.Leaf) *http.Client {
	t.Helper()
	conf := a.kubernetesTLSConfig()
	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, a.Now)
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
}

// rewrite replaces the paths inside files.
func rewrite(t *testing.T, dir string, m mapped) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(m.Replace(string(body))), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkSecondApply checks that a second apply writes nothing.
func checkSecondApply(t *testing.T, a *Agent, api kube.Client) {
	t.Helper()
	version := func() string {
		var o struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := api.Get(t.Context(), "/api/v1/namespaces/kube-system/configmaps/coredns", &o); err != nil {
			t.Fatal(err)
		}
		return o.Metadata.ResourceVersion
	}
	before := version()
	if err := newAddonTask(a, api).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := version(); after != before {
		t.Errorf("second apply wrote: resourceVersion %s → %s", before, after)
	}
}

// checkControllers waits for results that only a working controller manager produces.
func checkControllers(t *testing.T, api kube.Client) {
	t.Helper()
	eventually(t, "controller manager", func() error {
		var pods struct {
			Items []any `json:"items"`
		}
		if err := api.Get(t.Context(), "/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns", &pods); err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return errors.New("CoreDNS has " + strconv.Itoa(len(pods.Items)) + " pods")
		}
		return nil
	})
	eventually(t, "scheduler", func() error {
		return api.Get(t.Context(), "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", new(any))
	})
}

// checkAnonymous checks that anonymous requests reach only health checks.
func checkAnonymous(t *testing.T, a *Agent, server string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: a.kubernetesTLSConfig()}}
	for path, want := range map[string]int{"/readyz": 200, "/livez": 200, "/api/v1/nodes": 401, "/version": 401} {
		resp, err := client.Get(server + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers a stranger %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// checkStrangersOfEtcd connects to the member as somebody of the network, without a certificate and with one of their own. An
// answer of any kind would be one too many.
func checkStrangersOfEtcd(t *testing.T, m mapped) {
	t.Helper()
	own := issueForeign(t)
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a certificate of their own": {own}} {
		conf := &tls.Config{InsecureSkipVerify: true, Certificates: certificates}
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
		for _, url := range []string{m.Replace(etcd.ClientURL) + "/version", m.Replace("https://0.0.0.0:2380") + "/members"} {
			resp, err := client.Get(url)
			if err == nil {
				_ = resp.Body.Close()
				t.Errorf("etcd answers %s with %s at %s", name, resp.Status, url)
			} else if !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("%s at %s fails for another reason: %v", name, url, err)
			}
		}
	}
}

// issueForeign returns a client certificate of an authority that the cluster does not know.
func issueForeign(t *testing.T) tls.Certificate {
	t.Helper()
	key, cert, err := issueCertificate(testBundle(t), keyPair{ca: pki.EtcdClientCA, leaf: pki.Leaf{
		CN: "root", Orgs: []string{"system:masters"}, Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour,
	}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// checkEncrypted reads a Secret from etcd itself.
func checkEncrypted(t *testing.T, a *Agent, api kube.Client, m mapped) {
	t.Helper()
	secret := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default"},"stringData":{"k":"plain-text"}}`)
	eventually(t, "write a secret", func() error { return api.Apply(t.Context(), "/api/v1/namespaces/default/secrets/s", secret) })
	manager := a.newEtcdManager()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	url := m.Replace(etcd.ClientURL)
	status, err := manager.Status(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if !manager.Healthy(ctx, url) || status.Learner || !status.Leader {
		t.Errorf("member: %+v", status)
	}
	value, err := etcd.ReadKey(ctx, manager, url, "/registry/secrets/default/s")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:key1:")) || bytes.Contains(value, []byte("plain-text")) {
		t.Errorf("the secret is stored in etcd as %q", value)
	}
}
