// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// convergeWorker converges a worker.
func (a *Agent) convergeWorker(ctx context.Context) error {
	if err := a.downloadFiles(ctx); err != nil {
		return err
	}

	if err := a.prepareHost(ctx); err != nil {
		return err
	}

	if err := a.retryUntilReady(ctx, "warm", func() error { return a.checkWarmPool(ctx) }); err != nil {
		return err
	}

	if err := a.runStage("join", func() error { return a.renewNodeCertificates(ctx) }); err != nil {
		return err
	}

	var changed map[string]bool
	err := a.runStage("write", func() error {
		files, err := hostFiles(a.kubeConfig(), a.sysctls())
		if err != nil {
			return err
		}

		changed, err = a.writeFiles(files)

		return err
	})
	if err != nil {
		return err
	}

	return a.runStage("start", func() error { return a.startServices(ctx, changed) })
}

// renewNodeCertificates requests certificates from the join endpoint if they are due, and writes
// them to the tmpfs.
func (a *Agent) renewNodeCertificates(ctx context.Context) error {
	if _, err := a.Root.Write(a.authorityFile()); err != nil {
		return err
	}

	client, server := join.NodeLeaves(a.instance.Name, a.instance.Address, NodeTTL)
	clientPair := keyPair{path: kube.PKIDir + "/kubelet-client", leaf: client}
	serverPair := keyPair{path: kube.PKIDir + "/kubelet", leaf: server}
	if now := a.Now(); !needsRenewal(a.Root, clientPair, now) && !needsRenewal(a.Root, serverPair, now) {
		adoptPair(a.Root, clientPair)
		adoptPair(a.Root, serverPair)

		return nil
	}

	got, err := a.newJoinClient().Join(ctx, a.instance.Name)
	if err != nil {
		return err
	}

	if got.Name != a.instance.Name {
		return fmt.Errorf(
			"the join endpoint has name %s for this machine, its metadata service has %s",
			got.Name,
			a.instance.Name,
		)
	}

	if err := writePair(a.Root, clientPair, got.Key, []byte(got.Client)); err != nil {
		return err
	}

	return writePair(a.Root, serverPair, got.Key, []byte(got.Server))
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
