// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// newAttackedCluster starts a real API server with the add-ons of every cluster, and what authorizes kubelets in one.
func newAttackedCluster(t *testing.T) apitest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}

	key, err := pki.NewKey(pki.KubernetesCA)
	check(t, err)
	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, time.Now())
	check(t, err)
	server := apitest.StartWith(t, apitest.Options{ClientCA: ca.CertsPEM()})
	certificate, err := os.ReadFile(filepath.Join(filepath.Dir(server.Kubeconfig), "apiserver.crt"))
	check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := func(certificates ...tls.Certificate) *http.Client {
		conf := &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS13}
		return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
	}
	as := func(leaf pki.Leaf) *http.Client { return client(issue(t, ca, leaf)) }
	administrator := as(pki.Leaf{CN: "ada", Orgs: []string{"system:masters"}, Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour})
	cluster := apitest.Cluster{
		API:      kube.Client{Server: server.URL, HTTP: administrator},
		Stranger: client(),
		As:       as,
	}
	applyAddons(t, cluster.API)

	return cluster
}

// issue returns a client certificate with its key.
func issue(t *testing.T, ca pki.CA, leaf pki.Leaf) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	certificate, err := pki.IssueLeaf(ca, leaf, key.Public(), time.Now())
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	pair, err := tls.X509KeyPair(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	check(t, err)

	return pair
}

// applyAddons applies the add-ons of every cluster. The accounts of later namespaces may need some attempts.
func applyAddons(t *testing.T, api kube.Client) {
	t.Helper()
	objects, err := addon.Render(addon.Values{
		PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/16", DNSIP: "10.96.0.10", DNSDomain: "cluster.local",
		Images:     map[string]string{"kube-proxy": "p", "coredns": "c", "flannel": "f", "flannel-cni-plugin": "x"},
		AdminGroup: pki.AdminGroup,
	})
	check(t, err)
	for range 20 {
		err = nil
		for _, o := range objects {
			err = errors.Join(err, api.Apply(t.Context(), o.Path, o.Body))
		}
		if err == nil {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatal(err)
}

// check ends the test if the lab itself failed.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWorkersChangeOnlyTheirNode: what a worker has, the token of flannel and the certificate of its kubelet, changes its
// own Node alone, and neither its group nor the rules of network policies. Without the admission policies this was seen
// to succeed on a running cluster: the token relabelled a control-plane node and redirected its log requests.
func TestWorkersChangeOnlyTheirNode(t *testing.T) {
	newAttackedCluster(t).CheckNodeAttacks(t)
}

// TestGhostNodes: the certificate of a terminated machine, which is valid for some hours more, registers no Node and
// changes none of a later machine. Seen to succeed on a running cluster: a ghost stayed Ready for 17 minutes and
// received a pod with its Secret.
func TestGhostNodes(t *testing.T) {
	cluster := newAttackedCluster(t)
	list, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": apitest.LiveMachines(),
		"metadata": map[string]string{"name": "slipway-live-machines", "namespace": "kube-system"},
	})
	check(t, err)
	check(t, cluster.API.Apply(t.Context(), "/api/v1/namespaces/kube-system/configmaps/slipway-live-machines", list))
	cluster.CheckGhostAttacks(t)
}

// TestNodesOfOtherMachines: the certificate of a worker registers its Node only as that of its own machine. Seen to succeed: the
// repair ended the machine that such a Node named, because the Node was not Ready.
func TestNodesOfOtherMachines(t *testing.T) { newAttackedCluster(t).CheckMachineAttacks(t) }

// TestAPIServersOfMachinesAuthorizeKubelets: the API server of these tests authorizes kubelets as one of a machine does. No attack:
// what the other tests rely on.
func TestAPIServersOfMachinesAuthorizeKubelets(t *testing.T) {
	flags := kube.APIServerFlags(kube.Config{})
	for _, want := range []string{
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=DenyServiceExternalIPs,EventRateLimit,NodeRestriction",
	} {
		if !slices.Contains(flags, want) {
			t.Errorf("no %s", want)
		}
	}
}
