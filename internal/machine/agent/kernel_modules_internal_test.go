// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// kernelRunner is a Runner with a kernel: net.bridge.* exists only after br_netfilter was loaded.
type kernelRunner struct {
	root    *HostFS
	missing string // modprobe fails for this module
	loaded  []string
}

func (k *kernelRunner) Run(_ context.Context, name string, args ...string) (string, error) {
	if name != "modprobe" {
		return "", nil
	}
	module := args[len(args)-1]
	if module == k.missing {
		return "modprobe: FATAL: Module " + module + " not found in directory /lib/modules/6.1.0\n", errors.New("exit status 1")
	}
	k.loaded = append(k.loaded, module)
	if module != "br_netfilter" {
		return "", nil
	}
	for _, setting := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := k.root.Path("/proc/sys/net/bridge/" + setting)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte("0\n"), 0o644); err != nil {
			return "", err
		}
	}
	return "", nil
}

// TestModulesAreLoadedBeforeSettings: Debian, Ubuntu and Amazon Linux do not load br_netfilter, and its settings do not
// exist before.
func TestModulesAreLoadedBeforeSettings(t *testing.T) {
	a := testAgent(t)
	k := &kernelRunner{root: a.Root}
	a.Run = k
	if err := os.MkdirAll(a.Root.Path("/sys/module/overlay"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := a.prepareHost(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"br_netfilter", "vxlan"}; !slices.Equal(k.loaded, want) {
		t.Errorf("loaded %v, want %v: overlay was loaded already", k.loaded, want)
	}
	for _, setting := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		body, err := os.ReadFile(a.Root.Path("/proc/sys/net/bridge/" + setting))
		if err != nil || strings.TrimSpace(string(body)) != "1" {
			t.Errorf("%s is %q after prepare: %v", setting, body, err)
		}
	}
}

// TestMissingModuleFailsTheStage: without br_netfilter Services would fail for some pods, and nothing would say why.
func TestMissingModuleFailsTheStage(t *testing.T) {
	for _, module := range requiredModules(node.ClusterNetwork{}) {
		a := testAgent(t)
		a.Run = &kernelRunner{root: a.Root, missing: module}
		err := a.prepareHost(t.Context())
		if err == nil {
			t.Fatalf("prepare succeeds without %s", module)
		}
		if want := "load kernel module " + module + ": "; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not found in directory") {
			t.Errorf("error %q does not contain %q and modprobe's message", err, want)
		}
	}
}

// TestWireGuardNeedsItsModule: the encrypted pod network needs the module wireguard instead of vxlan, in this boot and the
// next ones. Without it the stage fails, and nothing travels unencrypted.
func TestWireGuardNeedsItsModule(t *testing.T) {
	a := testAgent(t)
	a.doc.Network.FlannelBackend = v1alpha1.FlannelWireGuard
	k := &kernelRunner{root: a.Root}
	a.Run = k
	if err := a.prepareHost(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"overlay", "br_netfilter", "wireguard"}
	if !slices.Equal(k.loaded, want) {
		t.Errorf("loaded %v, want %v", k.loaded, want)
	}
	files, err := a.machineFiles()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == "/etc/modules-load.d/slipway.conf" })
	if got := string(files[i].Body); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("a boot loads %q", got)
	}

	k.missing = "wireguard"
	err = a.prepareHost(t.Context())
	if err == nil || !strings.Contains(err.Error(), "load kernel module wireguard: ") {
		t.Errorf("without the module: %v", err)
	}
	if hint := strings.Join(diag.Hints(err), ""); !strings.Contains(hint, "overlay, br_netfilter, wireguard") {
		t.Errorf("the hint is %q", hint)
	}
}

// TestModulesOfPodNetworks: each pod network has the modules that it needs, and no other ones.
func TestModulesOfPodNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		network node.ClusterNetwork
		want    []string
	}{
		"VXLAN":      {node.ClusterNetwork{}, []string{"overlay", "br_netfilter", "vxlan"}},
		"WireGuard":  {node.ClusterNetwork{FlannelBackend: "WireGuard"}, []string{"overlay", "br_netfilter", "wireguard"}},
		"amazon-vpc": {node.ClusterNetwork{CNI: "amazon-vpc"}, []string{"overlay", "br_netfilter"}},
	} {
		if got := requiredModules(c.network); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
