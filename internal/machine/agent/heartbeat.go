// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// toleratedMisses is how many heartbeats in a row may fail before the worker reports on its Node that it sends
// none. That is before the control plane's agents would report it as silent.
const toleratedMisses = 1

// heart sends the heartbeats of a worker to the join endpoint.
type heart struct {
	// send one heartbeat.
	send func(context.Context) error
	// missed counts the failures in a row.
	missed int
}

// newHeart returns a heart with a connection of its own, which is kept: one heartbeat costs one packet each way.
func (a *Agent) newHeart() *heart {
	conf := a.kubernetesTLSConfig()
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		certificate := a.Root.Path(kube.PKIDir + "/kubelet-client")
		pair, err := tls.LoadX509KeyPair(certificate+".crt", certificate+".key")

		return &pair, err
	}

	client := join.Client{
		URL: "https://" + a.Boot.API.Internal + ":" + join.Port,
		HTTP: &http.Client{
			Timeout:   publishTimeout,
			Transport: &http.Transport{TLSClientConfig: conf, IdleConnTimeout: time.Minute},
		},
	}

	return &heart{send: client.SendHeartbeat}
}

// beat sends a heartbeat. It reports whether the control plane takes them.
func (h *heart) beat(ctx context.Context) (bool, error) {
	err := h.send(ctx)
	switch {
	case err == nil:
		h.missed = 0
		return true, nil
	case errors.Is(err, join.ErrNoHeartbeats): // the next apply replaces the agents of the control plane
		h.missed = toleratedMisses + 1
		return false, nil
	}

	h.missed++

	return h.missed <= toleratedMisses, err
}
