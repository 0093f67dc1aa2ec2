// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/agent"
	"github.com/slipway-k8s/slipway/internal/machine/auditlog"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestComponentsCannotRedirectRoot: a component that got out of its container puts a link where the agent, which is root,
// will write a temporary file. The file behind the link stays as it is, and the component gets no directory to write to.
// Seen to fail: the agent overwrote the file and gave it to the component.
func TestComponentsCannotRedirectRoot(t *testing.T) {
	root := &agent.HostFS{Dir: t.TempDir()}
	victim := filepath.Join(root.Dir, "shadow")
	if err := os.WriteFile(victim, []byte("root:x"), 0o600); err != nil {
		t.Fatal(err)
	}

	uid := kube.UserID(kube.Scheduler)
	directory := kube.ComponentDir(kube.Scheduler)
	if err := root.MakeReadableDir(directory, uid); err != nil {
		t.Fatal(err)
	}

	checkReadableDir(t, root.Path(directory), uid)
	if err := os.Symlink(victim, root.Path(directory+"/.scheduler.crt.slipway-new")); err != nil {
		t.Fatal(err)
	}

	file := agent.File{
		Path: directory + "/scheduler.crt",
		Body: []byte("certificate"),
		Mode: 0o644,
		UID:  uid,
	}
	if _, err := root.Write(file); err != nil {
		t.Fatal(err)
	}

	info, err := os.Lstat(victim)
	if err != nil {
		t.Fatal(err)
	}

	if body, err := os.ReadFile(victim); err != nil || string(body) != "root:x" || info.Mode() != 0o600 {
		t.Errorf("the file behind the link: %q, %v, %v", body, info.Mode(), err)
	}

	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		t.Errorf("the file behind the link has another owner: %+v", info.Sys())
	}

	if body, err := root.Read(file.Path); err != nil || string(body) != "certificate" {
		t.Errorf("the certificate is %q, %v", body, err)
	}
}

// checkReadableDir checks that a component reads a directory and does not write to it.
func checkReadableDir(t *testing.T, path string, gid int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	if got := info.Mode().Perm(); got != 0o750 {
		t.Errorf("the directory of a component has mode %04o, want 0750", got)
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 && (!ok || stat.Uid != 0 || int(stat.Gid) != gid) {
		t.Errorf("the directory of a component belongs to %+v, want root and group %d", info.Sys(), gid)
	}
}

// TestAuditLogFollowsNoLinks: the user of the API server puts a link, or a pipe, in the place of the audit log. The agent,
// which is root, uploads nothing of what is behind it, and does not wait. Seen to fail.
func TestAuditLogFollowsNoLinks(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(secret, []byte("root:x\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, plant := range map[string]func(path string) error{
		"a link":      func(path string) error { return os.Symlink(secret, path) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		for _, file := range []string{"audit.log", "audit-2026-11-23T12-00-00.000.log"} {
			dir := t.TempDir()
			if err := plant(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}

			var uploaded []string
			u := &auditlog.Uploader{
				Dir:       dir,
				StateFile: filepath.Join(dir, "state.json"),
				MaxObject: 1 << 20,
				Now:       time.Now,
				Create: func(_ context.Context, name string, _ []byte) error {
					uploaded = append(uploaded, name)
					return nil
				},
			}

			_, err := u.Upload(t.Context())
			if len(uploaded) > 0 || err == nil || !strings.Contains(err.Error(), "read the audit log") {
				t.Errorf("%s in the place of %s: uploaded %q, error %v", name, file, uploaded, err)
			}
		}
	}
}
