// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// etcdUID is the same on every machine, because files on a volume keep their owner when the volume
// moves.
const etcdUID = 2379

// requiredSysctls returns the kernel settings that Kubernetes needs. With protectKernelDefaults,
// the kubelet does not start without those in kernel and vm.
func requiredSysctls() map[string]string {
	return map[string]string{
		"net/ipv4/ip_forward":                 "1",
		"vm/overcommit_memory":                "1",
		"vm/panic_on_oom":                     "0",
		"kernel/panic":                        "10",
		"kernel/panic_on_oops":                "1",
		"kernel/keys/root_maxkeys":            "1000000",
		"kernel/keys/root_maxbytes":           "25000000",
		"net/bridge/bridge-nf-call-iptables":  "1",
		"net/bridge/bridge-nf-call-ip6tables": "1",
		// containerd and the kubelet on a node with many pods need more watches than the kernel's
		// default of 128.
		"fs/inotify/max_user_instances": "8192",
		"fs/inotify/max_user_watches":   "524288",
	}
}

// sysctls returns the kernel settings of this machine: those of its document, and those that Kubernetes needs. The keys
// are paths below /proc/sys.
func (a *Agent) sysctls() map[string]string {
	out := map[string]string{}
	for name, value := range a.doc.Sysctls {
		out[strings.ReplaceAll(name, ".", "/")] = value
	}

	maps.Copy(out, requiredSysctls())

	return out
}

// applySysctls sets the kernel settings that differ and returns those that failed as warnings: a
// component that needs a setting reports it, and in the local region machines share the kernel.
func (a *Agent) applySysctls(settings map[string]string) []error {
	var out []error
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		p := a.Root.Path("/proc/sys/" + key)
		want := settings[key]
		have, err := os.ReadFile(p)
		if err == nil && satisfiesSysctl(key, string(have), want) {
			continue
		}

		if err == nil {
			err = os.WriteFile(p, []byte(want), 0o644)
		}

		if err != nil {
			out = append(out, fmt.Errorf("set sysctl %s=%s: %w", key, want, err))
		}
	}

	return out
}

// changedSysctls returns the settings of to that from does not have.
func changedSysctls(from, to map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range to {
		if have, ok := from[key]; !ok || !isSameSysctl(have, value) {
			out[key] = value
		}
	}

	return out
}

// readSysctls returns the present values of kernel settings. It fails if the kernel does not have one of them.
func (a *Agent) readSysctls(settings map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		body, err := os.ReadFile(a.Root.Path("/proc/sys/" + key))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the kernel has no setting %s", strings.ReplaceAll(key, "/", "."))
		}

		if err != nil {
			return nil, fmt.Errorf("read sysctl %s: %w", key, err)
		}

		out[key] = strings.TrimSpace(string(body))
	}

	return out, nil
}

// satisfiesSysctl reports whether a kernel setting has the wanted value, or a higher one if it is a limit that only has
// to be high enough. Others may raise such a limit, as monitoring agents do with inotify watches.
func satisfiesSysctl(key, have, want string) bool {
	if isSameSysctl(have, want) {
		return true
	}

	if !strings.HasPrefix(key, "fs/inotify/") {
		return false
	}

	present, err := strconv.ParseInt(strings.TrimSpace(have), 10, 64)
	if err != nil {
		return false
	}

	least, err := strconv.ParseInt(strings.TrimSpace(want), 10, 64)

	return err == nil && present >= least
}

// isSameSysctl reports whether a kernel setting has a value. The kernel separates several numbers by tabs.
func isSameSysctl(have, want string) bool {
	return slices.Equal(strings.Fields(have), strings.Fields(want))
}

// sysctlFile returns the file from which a boot sets the kernel settings.
func sysctlFile(settings map[string]string) File {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		b.WriteString(strings.ReplaceAll(key, "/", ".") + " = " + settings[key] + "\n")
	}

	return File{Path: "/etc/sysctl.d/99-slipway.conf", Body: []byte(b.String()), Mode: 0o644}
}

// ensureEtcdUser creates the system user of etcd if it does not exist.
func ensureEtcdUser(ctx context.Context, root *HostFS, run Runner) error {
	body, err := os.ReadFile(root.Path("/etc/passwd"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find user %s: %w", etcd.User, err)
	}

	uid := strconv.Itoa(etcdUID)

	for entry := range strings.Lines(string(body)) {
		if fields := strings.Split(entry, ":"); len(fields) > 2 && fields[0] == etcd.User {
			if fields[2] != uid {
				return fmt.Errorf(
					"user %s has uid %s, want %s: the machine image must not create this user",
					etcd.User,
					fields[2],
					uid,
				)
			}

			return nil
		}
	}

	root.recordChange("user " + etcd.User)
	args := []string{
		"--uid", uid, "--user-group", "--no-create-home", "--home-dir", etcd.DataMount,
		"--shell", "/usr/sbin/nologin", etcd.User,
	}
	if _, err := run.Run(ctx, "useradd", args...); err != nil {
		return fmt.Errorf("create user %s: %w", etcd.User, err)
	}

	return nil
}

// linkPrograms links the downloaded binaries into the directories that they run from.
func linkPrograms(root *HostFS, d node.Document) error {
	for _, f := range d.Files {
		at := assetPath(f)
		switch f.Name {
		case "kubelet", "runc":
			if _, err := root.Link(d.BinDir()+"/"+f.Name, at); err != nil {
				return err
			}

		case "containerd":
			if err := linkExecutables(root, at+"/bin", d.BinDir()); err != nil {
				return err
			}

		case "cni-plugins":
			if err := linkExecutables(root, at, "/opt/cni/bin"); err != nil {
				return err
			}

		case "etcd":
			if err := linkEtcd(root, at, d.BinDir()); err != nil {
				return err
			}
		}
	}

	return nil
}

// linkExecutables links every executable file of a directory.
func linkExecutables(root *HostFS, from, to string) error {
	entries, err := os.ReadDir(root.Path(from))
	if err != nil {
		return fmt.Errorf("link programs of %s: %w", from, err)
	}

	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o100 == 0 {
			continue
		}

		if _, err := root.Link(to+"/"+e.Name(), from+"/"+e.Name()); err != nil {
			return err
		}
	}

	return nil
}

// linkEtcd links etcd's binaries, which are in a directory with the version in its name.
func linkEtcd(root *HostFS, at, to string) error {
	entries, err := os.ReadDir(root.Path(at))
	if err != nil {
		return fmt.Errorf("link programs of %s: %w", at, err)
	}

	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "etcd-") {
			return linkExecutables(root, at+"/"+e.Name(), to)
		}
	}

	return linkExecutables(root, at, to)
}

// hostFiles returns the files of every machine, whose boots load the kernel modules and set the kernel settings. CIS 4.1
// requires mode 0600 for Kubernetes' files.
func hostFiles(c kube.Config, modules []string, sysctls map[string]string) ([]File, error) {
	conf, err := kube.KubeletConfig(c)
	if err != nil {
		return nil, err
	}

	files := []File{
		sysctlFile(sysctls),
		{
			Path: "/etc/modules-load.d/slipway.conf",
			Body: []byte(strings.Join(modules, "\n") + "\n"),
			Mode: 0o644,
		},
		{
			Path: "/etc/containerd/config.toml",
			Body: []byte(kube.ContainerdConfig(c.Images["pause"])),
			Mode: 0o600,
		},
		{Path: kube.RuntimeSpecPath, Body: kube.RuntimeSpec(), Mode: 0o600},
		{
			Path: "/etc/systemd/system/containerd.service",
			Body: []byte(kube.ContainerdUnit(c)),
			Mode: 0o600,
		},
		{Path: kube.LogindConfigPath, Body: []byte(kube.LogindConfig()), Mode: 0o644},
		{Path: "/var/lib/kubelet/config.yaml", Body: conf, Mode: 0o600},
		{
			Path: kube.KubeconfigPath("kubelet"),
			Body: kube.CertificateKubeconfig(c.APIServer, kube.PKIDir, "kubelet-client"),
			Mode: 0o600,
		},
		{Path: kube.ConfigDir + "/pod.kubeconfig", Body: kube.PodKubeconfig(c.APIServer), Mode: 0o644},
		{Path: "/etc/systemd/system/kubelet.service", Body: []byte(kube.KubeletUnit(c)), Mode: 0o600},
	}
	if c.PrivateRegistry != "" {
		files = append(files, File{
			Path: kube.CredentialProviderConfigPath,
			Body: kube.CredentialProviderConfig(c.PrivateRegistry),
			Mode: 0o600,
		})
	}

	return files, nil
}

// resolvConf returns the file with the machine's upstream resolvers, because pods cannot reach the
// stub resolver of systemd-resolved.
func resolvConf(root *HostFS) string {
	const upstream = "/run/systemd/resolve/resolv.conf"
	if _, err := os.Stat(root.Path(upstream)); err == nil {
		return upstream
	}

	return "/etc/resolv.conf"
}
