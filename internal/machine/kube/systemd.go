// SPDX-License-Identifier: Apache-2.0

package kube

import (
	_ "embed" // the specification of containers
	"maps"
	"slices"
	"strings"
)

// NftDir has the program nft of machines whose image has none. Its directory bin has a script that runs it. It is not in
// /run, from which Debian executes nothing.
const NftDir = "/var/lib/slipway/nft"

// RuntimeSpecPath is the file that every container's specification begins with.
const RuntimeSpecPath = "/etc/containerd/runtime-spec.json"

//go:embed runtime-spec.json
var runtimeSpec []byte

// RuntimeSpec returns the specification that every container begins with: that of containerd ('ctr oci spec') without
// the capability NET_RAW, with which a container could send packets in the name of others. A pod that needs it asks for
// it. The caller must not change it.
func RuntimeSpec() []byte { return runtimeSpec }

// ContainerdConfig returns containerd's configuration with the given pause image. Files of the
// machine image in conf.d and certs.d (mirrors, platform limits) are merged in.
func ContainerdConfig(pause string) string {
	return `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "` + pause + `"

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/containerd/certs.d"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "` + RuntimeSpecPath + `"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
`
}

// ContainerdUnit returns containerd's systemd unit. Containers keep running while it restarts. Its PATH is that of CNI plugins
// too: portmap needs nft on a machine without iptables.
func ContainerdUnit(c Config) string {
	return `[Unit]
Description=containerd
After=network-online.target
[Service]
Type=notify
Environment=PATH=` + c.binDir() + `:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:` + NftDir + `/bin
ExecStart=` + c.binDir() + `/containerd
Restart=always
RestartSec=2
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=0
MemorySwapMax=0
TasksMax=infinity
OOMScoreAdjust=-999
`
}

// ConnectionChecks returns the environment of the programs that reach the API through a load balancer or a Service. Without a
// frame for 10 s they ask whether the connection still works, and leave it after 5 s without an answer. With the defaults of
// client-go, 30 s and 15 s, kube-proxy sends requests to pods that are gone for up to 45 s: an API server whose machine has ended
// closes no connection.
func ConnectionChecks() map[string]string {
	return map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"}
}

// renderEnvironment returns the lines of a unit that set variables.
func renderEnvironment(variables map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		out.WriteString("Environment=" + name + "=" + variables[name] + "\n")
	}

	return out.String()
}

// KubeletUnit returns the kubelet's systemd unit. Only the agent starts it, not a reboot: its keys
// are on a tmpfs and the agent must create them first.
func KubeletUnit(c Config) string {
	return `[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service
StartLimitIntervalSec=0
[Service]
Environment=PATH=` + c.binDir() + `:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
` + renderEnvironment(ConnectionChecks()) + `ExecStart=` + c.binDir() + `/kubelet ` + strings.Join(KubeletFlags(c), " \\\n  ") + `
Restart=always
RestartSec=2
KillMode=process
LimitCORE=0
MemorySwapMax=0
OOMScoreAdjust=-999
`
}

// LogindConfigPath is the file with [LogindConfig]. Of all files that set the delay, the last by name counts: the kubelet
// writes 99-kubelet.conf, and Ubuntu's package unattended-upgrades has a file with 30 s whose name begins with its own.
const LogindConfigPath = "/etc/systemd/logind.conf.d/zz-slipway.conf"

// LogindConfig returns the configuration that lets the kubelet delay a shutdown for its grace period. If logind allows
// less, the kubelet does not delay shutdowns at all.
func LogindConfig() string {
	return "[Login]\nInhibitDelayMaxSec=" + shutdownGracePeriod + "\n"
}
