// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// DataMount is the mount point of a slot's volume. DataDir is a directory below it, so that an
// empty directory on the root disk cannot be mistaken for the volume.
const (
	DataMount = "/var/lib/slipway/etcd"
	DataDir   = DataMount + "/data"
)

// ClientURL is the client URL of this machine's own member.
const ClientURL = "https://127.0.0.1:2379"

// PKIDir is the directory on a tmpfs with etcd's keys and certificates, owned by User.
const PKIDir = "/run/slipway/etcd-pki"

// FormerPKIDir is where earlier versions of the agent had PKIDir: inside the directory of Kubernetes' keys, where the CIS
// benchmark wants all files to be root's (1.1.19).
const FormerPKIDir = "/run/slipway/pki/etcd"

// User is the system user that etcd runs as (CIS 1.1.12).
const User = "etcd"

// Config holds the settings that differ between members.
type Config struct {
	// Name of the member, such as etcd-a.
	Name string
	// Host is the DNS name in the member's certificate and URLs.
	Host string
	// PeerHosts are the DNS names that peers' certificates may have.
	PeerHosts []string
	// HeartbeatMS is the heartbeat interval in milliseconds; zero means etcd's default.
	HeartbeatMS int
	// ElectionMS is the election timeout in milliseconds; zero means etcd's default.
	ElectionMS int
	// QuotaBytes is the quota of the database; zero means v1alpha1.MaxEtcdQuota.
	QuotaBytes int64
	// BinDir is the directory of the etcd binary. Default /usr/local/bin.
	BinDir string
}

// Flags returns the command-line flags of etcd, sorted: who the member is, and its keys. All other settings are in
// SettingsFile. The numbers in comments are controls of the CIS benchmark.
func Flags(c Config) []string {
	set := map[string]string{
		"name":                        c.Name,
		"data-dir":                    DataDir,
		"listen-peer-urls":            "https://0.0.0.0:2380",
		"listen-client-urls":          "https://0.0.0.0:2379",
		"advertise-client-urls":       "https://" + c.Host + ":2379",
		"initial-advertise-peer-urls": "https://" + c.Host + ":2380",
		// 2.1 to 2.3.
		"cert-file":        PKIDir + "/server.crt",
		"key-file":         PKIDir + "/server.key",
		"trusted-ca-file":  PKIDir + "/client-ca.crt",
		"client-cert-auth": "true",
		// 2.4 to 2.7: peers and clients have separate CAs, and a peer's certificate must name a
		// known host.
		"peer-cert-file":             PKIDir + "/peer.crt",
		"peer-key-file":              PKIDir + "/peer.key",
		"peer-trusted-ca-file":       PKIDir + "/peer-ca.crt",
		"peer-client-cert-auth":      "true",
		"peer-cert-allowed-hostname": strings.Join(c.PeerHosts, ","),
		"tls-min-version":            "TLS1.3",
		"listen-metrics-urls":        "http://127.0.0.1:2381",
		"enable-grpc-gateway":        "false",
	}

	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, "--"+k+"="+set[k])
	}

	return out
}

// SettingsFile has the settings of etcd that are the same for all members, as environment variables.
const SettingsFile = "/etc/etcd/etcd.conf"

// RenderSettings returns the content of SettingsFile, sorted. etcd reads a setting from the variable that is named like the
// flag.
func RenderSettings(c Config) []byte {
	set := map[string]string{
		"ETCD_QUOTA_BACKEND_BYTES": strconv.FormatInt(cmp.Or(c.QuotaBytes, v1alpha1.MaxEtcdQuota), 10),
		// kube-apiserver compacts its keys every 5 minutes; auto-compaction covers all other keys.
		"ETCD_AUTO_COMPACTION_MODE":      "periodic",
		"ETCD_AUTO_COMPACTION_RETENTION": "8h",
		// A member whose data differs from that of the others must not serve requests.
		"ETCD_FEATURE_GATES":         "CompactHashCheck=true,InitialCorruptCheck=true",
		"ETCD_CORRUPT_CHECK_TIME":    "12h",
		"ETCD_STRICT_RECONFIG_CHECK": "true",
		"ETCD_LOG_LEVEL":             "info",
	}
	if c.HeartbeatMS > 0 {
		set["ETCD_HEARTBEAT_INTERVAL"] = strconv.Itoa(c.HeartbeatMS)
	}

	if c.ElectionMS > 0 {
		set["ETCD_ELECTION_TIMEOUT"] = strconv.Itoa(c.ElectionMS)
	}

	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(set)) {
		b.WriteString(name + "=" + set[name] + "\n")
	}

	return []byte(b.String())
}

func joinPairs(set map[string]string) string {
	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}

	return strings.Join(out, ",")
}

// EnvironmentFile configures the next start of etcd. It is on a tmpfs, so that the agent decides
// anew after a reboot.
const EnvironmentFile = "/run/slipway/etcd.env"

// StartOptions configures the next start of etcd.
type StartOptions struct {
	// Members are the initial cluster: member name → peer URL.
	Members map[string]string
	// Token is etcd's initial-cluster-token.
	Token string
	// NewCluster bootstraps a new cluster instead of joining an existing one. It is unset once the
	// member has data, so that a restart by systemd alone cannot start an empty member.
	NewCluster bool
	// AllowEmptyData allows a start without data. It is unset once the member has data, like
	// NewCluster.
	AllowEmptyData bool
}

// RenderEnvironment returns the content of EnvironmentFile.
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

// SystemdUnit returns etcd's systemd unit. The unit does not start if DataMount is not a mount
// point, or if there is no data and StartOptions.AllowEmptyData is unset. It has no start timeout
// because the first members become ready only when a quorum of them runs.
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
EnvironmentFile=` + SettingsFile + `
EnvironmentFile=` + EnvironmentFile + `
ExecStartPre=/bin/sh -c 'test -d ` + DataDir + `/member || test "$SLIPWAY_EMPTY_START" = yes'
ExecStart=` + cmp.Or(c.BinDir, "/usr/local/bin") + `/etcd ` + strings.Join(Flags(c), " \\\n  ") + `
Restart=always
RestartSec=2
TimeoutStartSec=infinity
LimitNOFILE=65536
LimitCORE=0
MemorySwapMax=0
OOMScoreAdjust=-999
NoNewPrivileges=true
CapabilityBoundingSet=
ProtectSystem=full
ProtectHome=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectControlGroups=true
PrivateTmp=true
RestrictSUIDSGID=true
LockPersonality=true
`
}
