// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// DataMount is where a slot's volume is mounted. DataDir is below it, so that an empty folder of the root disk can
// never be taken for the volume.
const (
	DataMount = "/var/lib/slipway/etcd"
	DataDir   = DataMount + "/data"
)

// ClientURL of this machine's own member.
const ClientURL = "https://127.0.0.1:2379"

// PKIDir holds etcd's own keys, owned by its user; it is on a tmpfs.
const PKIDir = "/run/slipway/pki/etcd"

// User that etcd runs as (CIS 1.1.12).
const User = "etcd"

// Config is what differs between members.
type Config struct {
	// Name of the member and Host of its certificate and URLs.
	Name, Host string
	// PeerHosts are the names that a peer's certificate may have.
	PeerHosts []string
	// HeartbeatMS and ElectionMS in milliseconds; zero is etcd's default.
	HeartbeatMS, ElectionMS int
	// BinDir is the folder of etcd's program.
	BinDir string
}

// Flags of etcd. The numbers are rows of the CIS benchmark.
func Flags(c Config) []string {
	set := map[string]string{
		"name": c.Name, "data-dir": DataDir,
		"listen-peer-urls":            "https://0.0.0.0:2380",
		"listen-client-urls":          "https://0.0.0.0:2379",
		"advertise-client-urls":       "https://" + c.Host + ":2379",
		"initial-advertise-peer-urls": "https://" + c.Host + ":2380",
		// 2.1 to 2.3.
		"cert-file": PKIDir + "/server.crt", "key-file": PKIDir + "/server.key",
		"trusted-ca-file": PKIDir + "/client-ca.crt", "client-cert-auth": "true",
		// 2.4 to 2.7: peers and clients have CAs of their own, and a peer must be one by name.
		"peer-cert-file": PKIDir + "/peer.crt", "peer-key-file": PKIDir + "/peer.key",
		"peer-trusted-ca-file": PKIDir + "/peer-ca.crt", "peer-client-cert-auth": "true",
		"peer-cert-allowed-hostname": strings.Join(c.PeerHosts, ","),
		"tls-min-version":            "TLS1.3",
		"listen-metrics-urls":        "http://127.0.0.1:2381",
		"enable-grpc-gateway":        "false",
		// 8 GiB, the most that etcd's guide advises; kube-apiserver compacts every 5 minutes, this is for the rest.
		"quota-backend-bytes":       "8589934592",
		"auto-compaction-mode":      "periodic",
		"auto-compaction-retention": "8h",
		// A member whose data differs from the others' must not serve.
		"feature-gates":         "CompactHashCheck=true,InitialCorruptCheck=true",
		"corrupt-check-time":    "12h",
		"strict-reconfig-check": "true",
		"log-level":             "info",
	}
	if c.HeartbeatMS > 0 {
		set["heartbeat-interval"] = strconv.Itoa(c.HeartbeatMS)
	}

	if c.ElectionMS > 0 {
		set["election-timeout"] = strconv.Itoa(c.ElectionMS)
	}

	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, "--"+k+"="+set[k])
	}

	return out
}

func joinPairs(set map[string]string) string {
	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}

	return strings.Join(out, ",")
}

// EnvironmentFile says how the next start is to be. It is on a tmpfs: after a reboot the agent decides afresh.
const EnvironmentFile = "/run/slipway/etcd.env"

// StartOptions is how the next start is to be.
type StartOptions struct {
	// Members to start with: name → peer URL.
	Members map[string]string
	// Token names the cluster.
	Token string
	// NewCluster gives birth; Empty allows a start without data. Neither is set once there is data, so that a restart by
	// systemd alone can never come up empty.
	NewCluster, AllowEmptyData bool
}

// RenderEnvironment is the content of EnvironmentFile.
func RenderEnvironment(s StartOptions) []byte {
	state := "existing"
	empty := "no"
	if s.NewCluster {
		state = "new"
	}

	if s.AllowEmptyData {
		empty = "yes"
	}

	return []byte("ETCD_INITIAL_CLUSTER=" + joinPairs(s.Members) + "\nETCD_INITIAL_CLUSTER_STATE=" + state +
		"\nETCD_INITIAL_CLUSTER_TOKEN=" + s.Token + "\nSLIPWAY_EMPTY_START=" + empty + "\n")
}

// SystemdUnit is etcd's systemd unit. It refuses to start on a folder that is not the mounted volume, and without data unless
// the agent has just decided so. Its start has no time limit: a founder is ready only when a quorum of founders is.
func SystemdUnit(c Config) string {
	return `[Unit]
Description=etcd ` + c.Name + `
After=network-online.target
AssertPathIsMountPoint=` + DataMount + `
StartLimitIntervalSec=0
[Service]
Type=notify
User=` + User + `
Group=` + User + `
EnvironmentFile=` + EnvironmentFile + `
ExecStartPre=/bin/sh -c 'test -d ` + DataDir + `/member || test "$SLIPWAY_EMPTY_START" = yes'
ExecStart=` + cmp.Or(c.BinDir, "/usr/local/bin") + `/etcd ` + strings.Join(Flags(c), " \\\n  ") + `
Restart=always
RestartSec=2
TimeoutStartSec=infinity
LimitNOFILE=65536
OOMScoreAdjust=-999
NoNewPrivileges=true
ProtectSystem=full
ProtectHome=true
PrivateTmp=true
`
}
