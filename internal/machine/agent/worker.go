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

func (a *Agent) newJoinClient() join.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(a.doc.Trust.KubernetesCA))
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		DisableKeepAlives: true,
	}

	return join.Client{
		URL:  "https://" + a.Boot.API.Internal + ":" + join.Port,
		Sign: a.Sign,
		HTTP: &http.Client{Transport: transport, Timeout: 15 * time.Second},
	}
}
