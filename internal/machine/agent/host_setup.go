// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// kubeConfig returns the Kubernetes configuration of this machine.
func (a *Agent) kubeConfig() kube.Config {
	d := a.doc
	c := kube.Config{
		KubernetesVersion: d.KubernetesVersion,

		NodeName:     a.instance.Name,
		Address:      a.instance.Address.String(),
		Zone:         a.instance.Zone,
		Region:       d.Region,
		InstanceID:   a.instance.ID,
		InstanceType: a.instance.Type,
		Spot:         a.instance.Lifecycle == "spot",
		Group:        d.Group,
		MemoryMiB:    a.instance.MemoryMiB,
		CPUs:         a.instance.CPUs,
		ControlPlane: d.Role == v1alpha1.RoleControlPlane,
		BinDir:       d.BinDir(),
		APIServer:    "https://" + a.Boot.API.Internal + ":" + kube.APIPort,
		PodCIDR:      d.Network.PodCIDR,
		ServiceCIDR:  d.Network.ServiceCIDR,
		DNSIP:        d.Network.DNSIP,
		DNSDomain:    d.Network.DNSDomain,
		Images:       d.Images,
		NodeLabels:   maps.Clone(d.NodeLabels),
		Taints:       d.Taints,
		Kubelet:      d.Kubelet,

		ExternalNodeController: d.HasExternalNodeController(),

		APIServerSettings:         d.KubeAPIServer,
		ControllerManagerSettings: d.KubeControllerManager,

		ResolvConf: resolvConf(a.Root),
	}
	if d.HasVPCPods() {
		c.PodCIDR = ""
	}

	if registry, ok := privateRegistry(d); ok {
		c.PrivateRegistry = registry.Host
	}

	if c.ControlPlane {
		// A control-plane machine uses its own API server, so that it depends on no other machine.
		c.APIServer = "https://127.0.0.1:" + kube.APIPort
		if len(d.Join.Users) > 0 {
			c.TokenReviewURL = "https://" + net.JoinHostPort(c.Address, join.Port) + join.TokenReviewPath
		}

		c.EtcdGeneration, _ = (&etcdMember{agent: a}).dataGeneration(etcd.DataDir) // 0 while it cannot be read
	}

	return c
}

// prepareHost loads kernel modules, sets kernel settings, creates directories, and links binaries.
func (a *Agent) prepareHost(ctx context.Context) error {
	return a.runStage("prepare", func() error {
		if err := loadKernelModules(ctx, a.Root, a.Run, requiredModules(a.doc.Network)); err != nil {
			return err
		}

		for _, err := range a.applySysctls(a.sysctls()) {
			a.Log.Warn("cannot change kernel setting", slog.Any("error", err))
		}

		if err := makeHostDirs(a.Root, a.doc.Role); err != nil {
			return err
		}

		if _, err := a.Root.Link(kube.PKILink, kube.PKIDir); err != nil {
			return err
		}

		return linkPrograms(a.Root, a.doc)
	})
}

// makeHostDirs creates the directories of a machine of a role.
func makeHostDirs(root *HostFS, role v1alpha1.Role) error {
	secretReader := 0
	if role == v1alpha1.RoleControlPlane {
		secretReader = kube.UserID(kube.APIServer)
	}

	if err := root.MakeDir(kube.PKIDir, 0o711, 0); err != nil {
		return err
	}

	if err := root.MakeReadableDir(kube.SecretDir, secretReader); err != nil {
		return err
	}

	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		{kube.ConfigDir, 0o755},
		{kube.ConfigDir + "/kubelet.conf.d", 0o755},
		{kube.ConfigDir + "/manifests", 0o700},
		{"/etc/cni/net.d", 0o755},
		{"/opt/cni/bin", 0o755},
		{"/etc/containerd/certs.d", 0o755},
	} {
		if err := root.MakeDir(d.path, d.mode, 0); err != nil {
			return err
		}
	}

	return nil
}

// removeFormerFiles removes what an earlier version of the agent wrote under other names. No component reads these files
// once it was started with the present ones.
func removeFormerFiles(root *HostFS) error {
	for _, path := range kube.FormerFiles() {
		if err := root.Remove(path); err != nil {
			return err
		}
	}

	return nil
}

// writeFiles writes files and returns the paths of those that changed.
func (a *Agent) writeFiles(files []File) (map[string]bool, error) {
	changed := map[string]bool{}
	for _, f := range files {
		did, err := a.Root.Write(f)
		if err != nil {
			return changed, err
		}

		if did {
			changed[f.Path] = true
		}
	}

	return changed, nil
}

// startServices starts containerd, loads the packet filters, and starts the kubelet, which starts containers. It
// restarts those with a changed configuration.
func (a *Agent) startServices(ctx context.Context, changed map[string]bool) error {
	if err := a.reloadSystemd(ctx, changed); err != nil {
		return err
	}

	// Without a token containers of images that the machine has still start.
	if err := keepRegistryToken(ctx, a); err != nil {
		a.Log.Warn("cannot log in to the registry; will retry", slog.Any("error", err))
	}

	for _, s := range []struct {
		unit  string
		files []string
	}{
		{"containerd", []string{"/etc/systemd/system/containerd.service", "/etc/containerd/config.toml"}},
		{"kubelet", []string{
			"/etc/systemd/system/kubelet.service",
			"/var/lib/kubelet/config.yaml",
			kube.CredentialProviderConfigPath,
		}},
	} {
		if s.unit == node.ComponentKubelet {
			if err := loadPacketFilters(ctx, a); err != nil {
				return err
			}
		}

		again := mustRestart(a, s.unit)
		for _, f := range s.files {
			again = again || changed[f]
		}

		if err := a.ensureUnitStarted(ctx, s.unit, again); err != nil {
			return err
		}
	}

	return removeFormerFiles(a.Root)
}

// mustRestart reports whether a component may run with files of a revision that an earlier process of the agent was
// applying when it ended. It does so once.
func mustRestart(a *Agent, component string) bool {
	if a.restarted[component] || !slices.Contains(a.documentState.Attempt.Restarts, component) {
		return false
	}

	if a.restarted == nil {
		a.restarted = map[string]bool{}
	}

	a.restarted[component] = true

	return true
}

// ensureUnitStarted starts a unit that is not active. It restarts an active unit if changed is set.
func (a *Agent) ensureUnitStarted(
	ctx context.Context,
	unit string,
	changed bool,
) error {
	verb := "start"
	if isUnitActive(ctx, a, unit) {
		if !changed {
			return nil
		}

		verb = "restart"
	}

	a.Root.recordChange(verb + " " + unit)
	if _, err := a.Run.Run(ctx, "systemctl", verb, "--no-block", unit); err != nil {
		return fmt.Errorf("%s %s: %w", verb, unit, err)
	}

	return nil
}

// isUnitActive reports whether a unit runs or starts.
func isUnitActive(ctx context.Context, a *Agent, unit string) bool {
	// is-active fails for all states except active, but always prints the state.
	state, _ := a.Run.Run(ctx, "systemctl", "is-active", unit)

	return slices.Contains([]string{"active", "activating", "reloading"}, strings.TrimSpace(state))
}
