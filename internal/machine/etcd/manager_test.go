// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestMembersOfNobody checks that members that start at the same time, before any of them listens,
// do not wait for each other's timeouts.
func TestMembersOfNobody(t *testing.T) {
	t.Parallel()
	var peers []etcd.Peer
	for _, slot := range slots() {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, etcd.Peer{Slot: slot, ClientURL: "https://" + l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := etcd.Manager{TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Peers: peers, Timeout: time.Hour}
	if members := m.Members(ctx, "a"); members != nil || ctx.Err() != nil {
		t.Errorf("members %v, %v: want none, at once", members, ctx.Err())
	}
}
