// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

// conformanceCommands returns commands for each image by its name, each with a part of its output at the end.
func conformanceCommands() map[string][][]string {
	shell := [][]string{
		// A variable whose name is no identifier is passed on, and messages are those of busybox.
		{"/bin/sh", "-c", "env", "data-1=value"},
		{"/bin/sh", "-c", "unset x; [[ a == a ]] && for i in $(seq 2); do echo $i; done", "1\n2"},
	}
	tools := [][]string{
		{"/bin/sh", "-c", "curl --version", "libcurl"},
		{"/bin/sh", "-c", "dig -v 2>&1", "DiG"},
		{"/bin/sh", "-c", "nc -h 2>&1 || true", "OpenBSD"},
		{"/bin/sh", "-c", "ss --version", "iproute2"},
		{"/bin/sh", "-c", "getent hosts name.example", "192.0.2.7"},
		{"/bin/bash", "-c", "echo ${BASH_VERSION%%.*}", "5"},
	}
	tools = append(tools, shell...)
	agnhost := append([][]string{
		{"/agnhost", "netexec", "--help", "HTTP"},
		{"/agnhost-2", "pause", "--help", "pause"},
		{"/bin/sh", "-c", "cat /etc/os-release /localhost.crt", "Alpine Linux"},
		{"/bin/sh", "-c", "id -G user-defined-in-image", "50000"},
	}, tools...)
	return map[string][][]string{
		"agnhost":           agnhost,
		"kitten":            append([][]string{{"/bin/cat", "/data.json", "kitten.jpg"}}, agnhost...),
		"nautilus":          append([][]string{{"/bin/cat", "/data.json", "nautilus.jpg"}}, agnhost...),
		"busybox":           shell,
		"nonroot":           shell,
		"glibc-dns-testing": tools,
		"nginx":             append([][]string{{"/usr/sbin/nginx", "-t", "test is successful"}}, shell...),
		"nonewprivs":        {{"/usr/local/bin/nnp", "Effective uid: 0"}},
		"sample-apiserver":  {{"/sample-apiserver", "--help", "etcd-servers"}},
		"etcd":              {{"/usr/local/bin/etcd", "--version", "etcd Version"}},
		"pause":             {{"/pause", "--version", "pause"}},
	}
}

// TestConformanceImagesStart unpacks the images of the conformance tests and runs what the tests run in them, with
// nothing but the image as root.
func TestConformanceImagesStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: changing the root needs root")
	}

	dir, _ := built(t)
	commands := conformanceCommands()
	path, err := layout.FromPath(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}

	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}

	started := 0
	for _, d := range manifest.Manifests {
		ref := d.Annotations[build.RefAnnotation]
		if !isConformanceImage(ref) {
			continue
		}

		started++
		t.Run(ref, func(t *testing.T) {
			image, err := path.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}

			root := t.TempDir()
			unpack(t, image, root)
			prepareRoot(t, root)
			name, _, _ := strings.Cut(filepath.Base(ref), ":")
			if len(commands[name]) == 0 {
				t.Fatalf("no command is known for image %s", name)
			}

			for _, c := range commands[name] {
				runIn(t, root, c[:len(c)-1], c[len(c)-1])
			}
		})
	}

	if started == 0 {
		t.Skip("SKIPPED: the conformance tests are not built here (slipway assets build --conformance)")
	}
}

func isConformanceImage(ref string) bool {
	return strings.Contains(ref, "/e2e-test-images/") || strings.HasSuffix(ref, "/etcd:3.6.8-0") ||
		strings.HasSuffix(ref, "/pause:3.10.2")
}

// prepareRoot adds what a container has and an image does not.
func prepareRoot(t *testing.T, root string) {
	t.Helper()
	for name, text := range map[string]string{
		"etc/hosts":         "192.0.2.7 name.example\n",
		"dev/null":          "",
		"dev/stderr":        "",
		"proc/self/environ": "PATH=/bin\x00data-1=value\x00",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func runIn(t *testing.T, root string, argv []string, want string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "data-1=value"}
	cmd.Err = nil // exec looked for the program outside the new root
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %v, %s, want %q", argv, err, out, want)
	}
}

// TestConformanceShellSpeaksAsBusybox: tests expect the messages of busybox from the shell of their images.
func TestConformanceShellSpeaksAsBusybox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: changing the root needs root")
	}

	dir, _ := built(t)
	shells, err := filepath.Glob(filepath.Join(dir, "work", "shell-*", "root"))
	if err != nil || len(shells) == 0 {
		t.Skip("SKIPPED: the conformance tests are not built here (slipway assets build --conformance)")
	}

	cmd := exec.CommandContext(t.Context(), "/bin/busybox", "sh", "-c", "echo test >/no/file")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: shells[0]}
	cmd.Dir = "/"
	cmd.Err = nil
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "sh: can't create /no/file: nonexistent directory") {
		t.Errorf("%s", out)
	}
}
