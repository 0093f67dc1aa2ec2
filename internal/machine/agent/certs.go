// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// LeafTTL is the lifetime of leaf certificates; they are renewed after two thirds of it. One week
// limits the use of a leaked key, and leaves workers 56 hours if the join endpoint is unavailable
// when a certificate is due.
const LeafTTL = 7 * 24 * time.Hour

// NodeTTL is the lifetime of a worker's certificates. They are renewed after two thirds of it. It is short because a
// certificate outlives its machine, and the name of a node may be that of the next machine with the address.
const NodeTTL = 12 * time.Hour

// keyPair is a leaf certificate and key to be written to path.crt and path.key.
type keyPair struct {
	path string
	// ca is the name of the issuing CA, such as pki.KubernetesCA.
	ca   string
	leaf pki.Leaf
	// uid of the files' owner; zero is root.
	uid int
}

// controlPlanePairs returns the leaf certificates of a control-plane machine.
func controlPlanePairs(d node.Document, boot node.BootConfig, me Instance, etcdUID int) []keyPair {
	client := func(component, name, ca, cn string) keyPair {
		return keyPair{
			path: kube.ComponentDir(component) + "/" + name,
			ca:   ca,
			leaf: pki.Leaf{CN: cn, Usages: []pki.Usage{pki.ClientUsage}, TTL: LeafTTL},
			uid:  kube.UserID(component),
		}
	}

	kubeletClient, kubeletServer := join.NodeLeaves(me.Name, me.Address, LeafTTL)
	slot, _ := d.Slot(boot.Slot)
	loop := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	member := pki.Leaf{
		CN:     slot.Member,
		DNS:    []string{slot.Host, "localhost"},
		IPs:    []netip.Addr{loop, me.Address},
		Usages: []pki.Usage{pki.ServerUsage},
		TTL:    LeafTTL,
	}

	peer := member
	peer.DNS = []string{slot.Host}
	peer.IPs = []netip.Addr{me.Address}
	peer.Usages = []pki.Usage{pki.ClientUsage, pki.ServerUsage}

	return []keyPair{
		{
			path: kube.ComponentDir(kube.APIServer) + "/apiserver",
			ca:   pki.KubernetesCA,
			leaf: apiServerLeaf(d, boot, me),
			uid:  kube.UserID(kube.APIServer),
		},
		client(kube.APIServer, "apiserver-kubelet-client", pki.KubernetesCA, join.APIServerClient),
		client(kube.APIServer, "apiserver-etcd-client", pki.EtcdClientCA, "kube-apiserver-etcd-client"),
		client(kube.APIServer, "front-proxy-client", pki.FrontProxyCA, "front-proxy-client"),
		client(kube.ControllerManager, "controller-manager", pki.KubernetesCA, "system:kube-controller-manager"),
		client(kube.Scheduler, "scheduler", pki.KubernetesCA, "system:kube-scheduler"),
		{path: kube.PKIDir + "/kubelet-client", ca: pki.KubernetesCA, leaf: kubeletClient},
		{path: kube.PKIDir + "/kubelet", ca: pki.KubernetesCA, leaf: kubeletServer},
		{
			path: etcd.PKIDir + "/server",
			ca:   pki.EtcdClientCA,
			leaf: member,
			uid:  etcdUID,
		},
		{
			path: etcd.PKIDir + "/peer",
			ca:   pki.EtcdPeerCA,
			leaf: peer,
			uid:  etcdUID,
		},
	}
}

// apiServerLeaf returns the certificate of kube-apiserver with all names and addresses that clients
// use for it.
func apiServerLeaf(d node.Document, boot node.BootConfig, me Instance) pki.Leaf {
	leaf := pki.Leaf{
		CN:     "kube-apiserver",
		Usages: []pki.Usage{pki.ServerUsage},
		TTL:    LeafTTL,
		DNS: []string{
			"kubernetes",
			"kubernetes.default",
			"kubernetes.default.svc",
			"kubernetes.default.svc." + d.Network.DNSDomain,
			"localhost",
			me.Name,
		},
	}

	leaf.IPs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), me.Address}
	names := []string{d.Network.KubernetesIP, boot.API.Internal, boot.API.Public}

	for _, name := range append(names, d.APISANs...) {
		addSAN(&leaf, name)
	}

	return leaf
}

func addSAN(leaf *pki.Leaf, name string) {
	if address, err := netip.ParseAddr(name); err == nil {
		leaf.IPs = append(leaf.IPs, address)
	} else if name != "" && !slices.Contains(leaf.DNS, name) {
		leaf.DNS = append(leaf.DNS, name)
	}
}

// needsRenewal reports whether the certificate at p.path must be issued again: it is missing, does
// not match its key, is past two thirds of its lifetime, or has other names than p.leaf.
func needsRenewal(root *HostFS, p keyPair, now time.Time) bool {
	body, err := os.ReadFile(root.Path(p.path + ".crt"))
	if err != nil {
		return true
	}

	key, err := os.ReadFile(root.Path(p.path + ".key"))
	if err != nil {
		return true
	}

	// Key and certificate are written one after the other. If the agent stopped in between, they do
	// not match.
	if _, err := tls.X509KeyPair(body, key); err != nil {
		return true
	}

	certs, err := pki.ParseCerts(body)
	if err != nil || len(certs) == 0 {
		return true
	}

	return renewAt(certs[0]).Before(now) || !namesMatch(certs[0], p.leaf)
}

func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

func namesMatch(c *x509.Certificate, leaf pki.Leaf) bool {
	ips := make([]string, 0, len(leaf.IPs))
	for _, ip := range leaf.IPs {
		ips = append(ips, ip.Unmap().String())
	}

	have := make([]string, 0, len(c.IPAddresses))
	for _, ip := range c.IPAddresses {
		have = append(have, ip.String())
	}

	return c.Subject.CommonName == leaf.CN && equalSets(c.DNSNames, leaf.DNS) && equalSets(have, ips)
}

func equalSets(a, b []string) bool {
	return slices.Equal(
		slices.Compact(slices.Sorted(slices.Values(a))),
		slices.Compact(slices.Sorted(slices.Values(b))),
	)
}

// issuePairs issues the certificates that are due.
func issuePairs(root *HostFS, b pki.Bundle, pairs []keyPair, now time.Time) error {
	for _, p := range pairs {
		if !needsRenewal(root, p, now) {
			adoptPair(root, p)
			continue
		}

		key, cert, err := issueCertificate(b, p, now)
		if err != nil {
			return err
		}

		if err := writePair(root, p, key, cert); err != nil {
			return err
		}
	}

	return nil
}

// adoptPair makes the machine own a certificate and key that an earlier process of the agent wrote.
func adoptPair(root *HostFS, p keyPair) {
	root.Adopt(p.path+".key", 0o600, p.uid)
	root.Adopt(p.path+".crt", 0o644, p.uid)
}

func issueCertificate(b pki.Bundle, p keyPair, now time.Time) (keyPEM, certPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %s: %w", p.leaf.CN, err)
	}

	cert, err := pki.IssueLeaf(b.CAs[p.ca], p.leaf, key.Public(), now)
	if err != nil {
		return nil, nil, err
	}

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key of %s: %w", p.leaf.CN, err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), cert, nil
}

func writePair(root *HostFS, p keyPair, key, cert []byte) error {
	_, keyErr := root.Write(File{
		Path: p.path + ".key",
		Body: key,
		Mode: 0o600,
		UID:  p.uid,
	})

	_, certErr := root.Write(File{
		Path: p.path + ".crt",
		Body: cert,
		Mode: 0o644,
		UID:  p.uid,
	})

	return errors.Join(keyErr, certErr)
}

// newCertificateSource returns a function that issues a certificate for the agent's own use and
// reissues it when it is due. The key stays in memory. The function is safe for concurrent use.
func newCertificateSource(
	b pki.Bundle,
	ca string,
	leaf pki.Leaf,
	now func() time.Time,
) func() (*tls.Certificate, error) {
	var current *tls.Certificate
	var mu sync.Mutex
	return func() (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if current != nil && current.Leaf != nil && now().Before(renewAt(current.Leaf)) {
			return current, nil
		}

		key, cert, err := issueCertificate(b, keyPair{ca: ca, leaf: leaf}, now())
		if err != nil {
			return nil, err
		}

		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("load certificate of %s: %w", leaf.CN, err)
		}

		current = &pair

		return current, nil
	}
}
