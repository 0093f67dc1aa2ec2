// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestProbeOfSilentMembers: a member that does not listen is reported at once, and one that accepts
// connections and never answers, like a paused process, within seconds.
func TestProbeOfSilentMembers(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := etcd.Manager{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	url := "https://" + l.Addr().String()
	begin := time.Now()
	if _, _, err := m.Probe(t.Context(), url); err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("paused member: %v after %s", err, time.Since(begin))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := m.Probe(ctx, url); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("stopped member: %v", err)
	}
}

func TestAlarms(t *testing.T) {
	t.Parallel()
	s := etcd.Status{Errors: []string{"memberID:9372538179322589801 alarm:NOSPACE ", "etcdserver: no leader"}}
	if diff := cmp.Diff([]string{"NOSPACE"}, s.Alarms()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
