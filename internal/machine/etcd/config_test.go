// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// TestCISFlags checks section 2 of the CIS Kubernetes benchmark 1.12. A want of "" means that the
// flag must be set to anything, "-" that it must not be there.
func TestCISFlags(t *testing.T) {
	config := etcd.Config{Name: "etcd-a", Host: "etcd-a.demo.internal", PeerHosts: []string{"etcd-a.demo.internal", "etcd-b.demo.internal"}, HeartbeatMS: 250}
	args := etcd.Flags(config)
	for line := range strings.Lines(string(etcd.RenderSettings(config))) { // etcd reads flags from the environment too
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		args = append(args, "--"+strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, "ETCD_")), "_", "-")+"="+value)
	}
	for _, row := range []struct{ id, flag, want string }{
		{"2.1", "cert-file", ""},
		{"2.1", "key-file", ""},
		{"2.2", "client-cert-auth", "true"},
		{"2.3", "auto-tls", "-"},
		{"2.4", "peer-cert-file", ""},
		{"2.4", "peer-key-file", ""},
		{"2.5", "peer-client-cert-auth", "true"},
		{"2.6", "peer-auto-tls", "-"},
		{"2.7", "trusted-ca-file", "/run/slipway/etcd-pki/client-ca.crt"},
		{"2.7", "peer-trusted-ca-file", "/run/slipway/etcd-pki/peer-ca.crt"},
		{"TLS 1.3", "tls-min-version", "TLS1.3"},
		{"peers by name", "peer-cert-allowed-hostname", "etcd-a.demo.internal,etcd-b.demo.internal"},
		{"metrics", "listen-metrics-urls", "http://127.0.0.1:2381"},
		{"corruption", "feature-gates", "CompactHashCheck=true,InitialCorruptCheck=true"},
		{"quota", "quota-backend-bytes", ""},
		{"manifest", "heartbeat-interval", "250"},
		{"no bootstrap by flags", "initial-cluster-state", "-"},
	} {
		t.Run(row.id+" "+row.flag, func(t *testing.T) {
			value, found := "", false
			for _, a := range args {
				if key, v, _ := strings.Cut(a, "="); key == "--"+row.flag {
					value, found = v, true
				}
			}
			switch {
			case row.want == "-" && found:
				t.Errorf("--%s=%s must not be set", row.flag, value)
			case row.want != "-" && (!found || value == ""):
				t.Errorf("--%s is not set", row.flag)
			case row.want != "-" && row.want != "" && value != row.want:
				t.Errorf("--%s=%s, want %s", row.flag, value, row.want)
			}
		})
	}
}

// TestQuota: without a quota in the document, the member has that which all members have had.
func TestQuota(t *testing.T) {
	for quota, want := range map[int64]string{0: "8589934592", 1 << 30: "1073741824"} {
		settings := string(etcd.RenderSettings(etcd.Config{QuotaBytes: quota}))
		if !strings.Contains(settings, "ETCD_QUOTA_BACKEND_BYTES="+want+"\n") {
			t.Errorf("%d:\n%s", quota, settings)
		}
	}
}

// TestEnvironment checks that only a decided first start is new or empty, and that the unit guards
// both.
func TestEnvironment(t *testing.T) {
	members := map[string]string{"etcd-b": "https://b:2380", "etcd-a": "https://a:2380"}
	settled := string(etcd.RenderEnvironment(etcd.StartOptions{Members: members}))
	want := "ETCD_INITIAL_CLUSTER=etcd-a=https://a:2380,etcd-b=https://b:2380\nETCD_INITIAL_CLUSTER_STATE=existing\n" +
		"ETCD_INITIAL_CLUSTER_TOKEN=\nSLIPWAY_EMPTY_START=no\n"
	if settled != want {
		t.Errorf("got %q, want %q", settled, want)
	}
	first := string(etcd.RenderEnvironment(etcd.StartOptions{Members: members, Token: "t", NewCluster: true, AllowEmptyData: true}))
	if !strings.Contains(first, "STATE=new\n") || !strings.Contains(first, "EMPTY_START=yes\n") {
		t.Errorf("first: %q", first)
	}
	unit := etcd.SystemdUnit(etcd.Config{Name: "etcd-a", Host: "h"})
	for _, want := range []string{"AssertPathIsMountPoint=" + etcd.DataMount, "ExecStartPre=", "User=etcd", "TimeoutStartSec=infinity", "EnvironmentFile=/etc/etcd/etcd.conf"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	if strings.Contains(unit, "[Install]") {
		t.Error("systemd alone must never start etcd")
	}
}
