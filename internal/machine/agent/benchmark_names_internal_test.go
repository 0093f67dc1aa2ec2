// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// writeMachine writes all files of a control-plane machine, as a boot does.
func writeMachine(t *testing.T, a *Agent) {
	t.Helper()
	if err := a.prepareHost(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed, err := a.writeControlPlane()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.startServices(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	slot, _ := a.doc.Slot("a")
	if err := (&etcdMember{agent: a, slot: slot}).startEtcd(t.Context(), etcd.StartOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNamesOfTheBenchmark: kube-bench looks for files by the names that kubeadm gives them, and fails a check whose file
// does not exist. Controls 1.1.7, 1.1.13, 1.1.15, 1.1.17, 4.1.5 and 4.1.9 require mode 0600, 1.1.19 that no file below pki is
// anybody's but root's.
func TestNamesOfTheBenchmark(t *testing.T) {
	a := testAgent(t)
	a.Run = &runs{}
	writeMachine(t, a)
	for _, path := range []string{
		"/etc/kubernetes/scheduler.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/kubelet.conf",
		"/etc/kubernetes/admin.conf",
		"/etc/etcd/etcd.conf", "/var/lib/kubelet/config.yaml", "/etc/systemd/system/kubelet.service",
	} {
		info, err := os.Stat(a.Root.Path(path))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, mode %v, want 0600", path, err, info)
		}
	}
	if target, err := os.Readlink(a.Root.Path("/etc/kubernetes/pki")); err != nil || target != kube.PKIDir {
		t.Errorf("/etc/kubernetes/pki leads to %q: %v", target, err)
	}
	err := filepath.WalkDir(a.Root.Path(kube.PKIDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		if uid, _ := ownerOf(info); uid != 0 {
			t.Errorf("%s belongs to user %d", path, uid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFormerNamesAreRemoved: a machine that an earlier version of the agent set up gets the files under their new names,
// its components restart with them, and the former files go.
func TestFormerNamesAreRemoved(t *testing.T) {
	a := testAgent(t)
	r := &runs{active: map[string]bool{"kubelet": true, "containerd": true, "etcd": true}}
	a.Run = r
	former := append(kube.FormerFiles(), etcd.FormerPKIDir+"/server.key")
	for _, path := range former {
		if err := os.MkdirAll(filepath.Dir(a.Root.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(a.Root.Path(path), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeMachine(t, a)
	for _, path := range append(former, etcd.FormerPKIDir) {
		if _, err := os.Lstat(a.Root.Path(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	restarted := map[string]bool{}
	for _, line := range r.lines {
		restarted[line] = true
	}
	for _, unit := range []string{"kubelet", "etcd"} {
		if !restarted["systemctl restart --no-block "+unit] {
			t.Errorf("%s was not restarted: %v", unit, r.lines)
		}
	}
	if damage := a.Root.findDamage(); len(damage) != 0 {
		t.Errorf("the agent misses %v", damage)
	}
}
