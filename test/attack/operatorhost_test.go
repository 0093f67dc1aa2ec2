// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// TestRenderedFilesArePrivate: what a template contains of user data is for the operator's eyes only. Seen to succeed with the code of
// before, which wrote files of mode 0644, put in again.
func TestRenderedFilesArePrivate(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	out := filepath.Join(l.dir, "out")
	l.must(caller{}, 0, "render", "terraform", "demo", "--out", out)
	l.must(caller{}, 0, "render", "cloudformation", "demo", "--out", filepath.Join(out, "demo.json"))
	found := 0
	l.check(filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found++
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}

		return err
	}))
	if found != 2 {
		t.Errorf("%d rendered files", found)
	}
}

// TestEditorGetsNoSecrets: an editor, or one of its plugins, reads no credentials in its environment. Seen to succeed with the check of
// variables taken out.
func TestEditorGetsNoSecrets(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	seen := filepath.Join(l.dir, "environment")
	env := l.region.Env()
	maps.Copy(env, map[string]string{
		"SLIPWAY_STATE": stateURL, "SLIPWAY_NODE_BINARY": l.agent, "HOME": l.dir, "EDITOR": "env >" + seen + "; true",
	})
	for name, value := range map[string]string{
		"GITHUB_TOKEN": "hunter2", "DB_PASSWORD": "hunter2", "SLIPWAY_AGE_KEY": "hunter2", "LANG": "C.UTF-8",
		"SOPS_AGE_KEY": "hunter2", "DB_PASS": "hunter2", "GH_PAT": "hunter2", "DATABASE_URL": "postgres://shop:hunter2@db.internal/orders",
		"FTP_PROXY": "http://shop:hunter2@proxy.internal:3128", "HOME_PATH": "/home/someone", "NO_PROXY": "internal",
	} {
		t.Setenv(name, value)
	}
	for name, value := range env {
		t.Setenv(name, value)
	}

	var output bytes.Buffer
	cli.Main(t.Context(), cli.Env{
		Args: []string{"edit", "cluster", "demo"}, Stdin: strings.NewReader(""), Stdout: &output, Stderr: &output,
		Getenv: os.Getenv, Environ: os.Environ, Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
	})
	got, err := os.ReadFile(seen)
	if err != nil {
		t.Fatalf("the editor did not run: %v\n%s", err, &output)
	}
	for _, plain := range []string{"LANG=C.UTF-8", "HOME_PATH=/home/someone", "NO_PROXY=internal"} {
		if !strings.Contains(string(got), plain) {
			t.Errorf("the editor has no %s: %s", plain, got)
		}
	}
	for _, secret := range []string{"hunter2", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", env["AWS_SECRET_ACCESS_KEY"]} {
		if secret != "" && strings.Contains(string(got), secret) {
			t.Errorf("the editor sees %q", secret)
		}
	}
}
