// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// convergeWorker converges a worker.
func (a *Agent) convergeWorker(ctx context.Context) error {
	if err := warmPoolOf(a).prepare(ctx); err != nil {
		return err
	}

	err := a.retryUntilReady(ctx, "warm", func() error { return warmPoolOf(a).check(ctx) })
	if err != nil {
		return err
	}

	if err := a.runStage("join", func() error { return a.joinCluster(ctx) }); err != nil {
		return err
	}

	var changed map[string]bool
	err = a.runStage("write", func() error {
		files, err := hostFiles(a.kubeConfig(), requiredModules(a.doc.Network), a.sysctls())
		if err != nil {
			return err
		}

		changed, err = a.writeFiles(files)

		return err
	})
	if err != nil {
		return err
	}

	return a.runStage("start", func() error {
		if err := a.startServices(ctx, changed); err != nil {
			return err
		}

		if _, ok := privateRegistry(a.doc); ok {
			pullImages(ctx, a, sandboxImage)
		}

		return nil
	})
}

// nodePairs returns the certificates of a worker: that of the kubelet as a client of the API, and that of its own server.
func nodePairs(a *Agent) (client, server keyPair) {
	clientLeaf, serverLeaf := join.NodeLeaves(a.instance.Name, a.instance.Address, NodeTTL)
	client = keyPair{path: kube.PKIDir + "/kubelet-client", leaf: clientLeaf}
	server = keyPair{path: kube.PKIDir + "/kubelet", leaf: serverLeaf}

	return client, server
}

// adoptNodeCertificates writes the authority of the cluster, and makes the machine own its certificates. It reports
// whether they must be requested, because they are missing, due, or for another name.
func adoptNodeCertificates(a *Agent) (isDue bool, err error) {
	if _, err := a.Root.Write(a.authorityFile()); err != nil {
		return false, err
	}

	client, server := nodePairs(a)
	if now := a.Now(); needsRenewal(a.Root, client, now) || needsRenewal(a.Root, server, now) {
		return true, nil
	}

	adoptPair(a.Root, client)
	adoptPair(a.Root, server)

	return false, nil
}

// writeNodeCertificates writes the answer of the join endpoint to the tmpfs.
func writeNodeCertificates(a *Agent, got join.NodeCredentials) error {
	client, server := nodePairs(a)
	if err := writePair(a.Root, client, got.Key, []byte(got.Client)); err != nil {
		return err
	}

	return writePair(a.Root, server, got.Key, []byte(got.Server))
}

// newJoinClient returns a client of the join endpoint. It shows the certificate of the node, once
// there is one, so that callers without one cannot use up its limit of requests.
func (a *Agent) newJoinClient() join.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.KubernetesCA))
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs:    roots,
			MinVersion: tls.VersionTLS13,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return findNodeCertificate(a.Root, roots, a.Now()), nil
			},
		},
		DisableKeepAlives: true,
	}

	return join.Client{
		URL:  "https://" + a.Boot.API.Internal + ":" + join.Port,
		Sign: a.Sign,
		HTTP: &http.Client{Transport: transport, Timeout: 15 * time.Second},
	}
}

// certificateMargin is how much longer than now a certificate must be valid to be shown: clocks
// differ a little, and the endpoint ends the connection of a client whose certificate is not valid.
const certificateMargin = 10 * time.Minute

// findNodeCertificate returns the node's certificate of a worker. It is empty, which TLS takes for
// none, if the machine has none that the authorities would accept.
func findNodeCertificate(root *HostFS, authorities *x509.CertPool, now time.Time) *tls.Certificate {
	file := root.Path(kube.PKIDir + "/kubelet-client")
	pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		return &tls.Certificate{}
	}

	_, err = pair.Leaf.Verify(x509.VerifyOptions{
		Roots:       authorities,
		CurrentTime: now.Add(certificateMargin),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return &tls.Certificate{}
	}

	return &pair
}
