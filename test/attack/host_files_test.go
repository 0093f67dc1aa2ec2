// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/agent"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestTextOfMachinesChangesNoTerminal: a machine reports text that clears the screen, sets the title, hides a part of itself
// or writes over the line before. What an operator sees has none of that. Seen to succeed.
func TestTextOfMachinesChangesNoTerminal(t *testing.T) {
	for _, text := range []string{
		"\x1b[2J\x1b[1;1Hcluster demo is healthy", "\x1b]0;title\x07", "failed\rworked", "\u009b31mred", "abc\u202egnp.exe", "a\x00b\x7f",
	} {
		for _, r := range plainerror.Printable(text) {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Errorf("%q reaches the terminal as %q", text, plainerror.Printable(text))
			}
		}
	}
}

// TestKeyFileThatOthersRead: another user of the operator's computer reads the key of a state store in a folder. Slipway does
// not use such a key, so that its owner notices. Seen to succeed.
func TestKeyFileThatOthersRead(t *testing.T) {
	l := newLabWithoutStore(t)
	key := filepath.Join(l.dir, "state.key")
	args := []string{"--state", "file://" + filepath.Join(l.dir, "state"), "--state-key", key}
	create := append([]string{"create", "cluster", "demo", "--zones", "us-east-1a", "--yes"}, args...)
	l.must(caller{}, 0, append([]string{"state", "init", "--yes"}, args...)...)

	l.check(os.Chmod(key, 0o644))
	if out, errs, code := l.slipway(caller{}, create...); code == 0 || !strings.Contains(errs, key) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}

	l.check(os.Chmod(key, 0o600))
	l.must(caller{}, 0, create...)
}

// TestDefaultAccountsHaveNoTokens: a pod of a system namespace that names no service account finds no token of one. Seen to
// succeed.
func TestDefaultAccountsHaveNoTokens(t *testing.T) {
	objects, err := addon.Render(addon.Values{
		PodCIDR:     "10.244.0.0/16",
		ServiceCIDR: "10.96.0.0/16",
		DNSIP:       "10.96.0.10",
		DNSDomain:   "cluster.local",
		AdminGroup:  "slipway:cluster-admins",
		Images:      map[string]string{"kube-proxy": "k", "coredns": "c", "flannel": "f", "flannel-cni-plugin": "p"},
	})
	if err != nil {
		t.Fatal(err)
	}

	mounts := map[string]bool{"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true}
	for _, o := range objects {
		rest, ok := strings.CutPrefix(o.Path, "/api/v1/namespaces/")
		namespace, account := filepath.Split(rest)
		if ok && account == "default" && bytes.Contains(o.Body, []byte(`"automountServiceAccountToken":false`)) {
			delete(mounts, strings.TrimSuffix(namespace, "/serviceaccounts/"))
		}
	}

	if len(mounts) > 0 {
		t.Errorf("the default accounts of %v mount tokens", mounts)
	}
}

// flood is a download server that never stops.
type flood struct{ sent int64 }

// Open returns the download.
func (f *flood) Open(context.Context, string) (io.ReadCloser, error) { return io.NopCloser(f), nil }

// Read returns more of it.
func (f *flood) Read(p []byte) (int, error) {
	f.sent += int64(len(p))
	if f.sent > 64<<20 {
		return 0, io.ErrUnexpectedEOF // the test must end
	}

	return len(p), nil
}

// TestDownloadsFillNoDisk: a server in the place of a download server sends without end. Seen to succeed.
func TestDownloadsFillNoDisk(t *testing.T) {
	for name, size := range map[string]int64{"a size in the catalogue": 4096, "no size": 0} {
		server := &flood{}
		root := &agent.HostFS{Dir: t.TempDir()}
		fetcher := agent.Fetcher{
			Root:     root,
			Open:     server,
			Wait:     func(context.Context, time.Duration) error { return errors.New("retried") },
			OnRetry:  func(error) {},
			MaxBytes: 1 << 20,
		}
		sum := sha256.Sum256([]byte("kubelet"))
		_, err := fetcher.FetchAll(t.Context(), []node.File{{
			Name:   "kubelet",
			URL:    "https://downloads.example.com/kubelet",
			SHA256: hex.EncodeToString(sum[:]),
			Form:   node.FormBinary,
			Size:   size,
		}})
		if _, bounded := errors.AsType[agent.SizeError](err); !bounded || server.sent > 2<<20 {
			t.Errorf("%s: %d bytes were read: %v", name, server.sent, err)
		}

		left, err := os.ReadDir(root.Path(agent.AssetDir + "/" + hex.EncodeToString(sum[:])))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left on the disk: %v, %v", name, left, err)
		}
	}
}

// bootService is the metadata service and S3 of a booting machine. Requests for the agent are redirected to a thief, and one
// that comes back gets it.
type bootService struct {
	thief string
	asked int
}

func (s *bootService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/latest/api/token":
		fmt.Fprint(w, "token")
	case "/latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "role")
	case "/latest/meta-data/iam/security-credentials/role":
		fmt.Fprint(w, `{"AccessKeyId":"AKID","SecretAccessKey":"SECRET","Token":"SESSION"}`)
	case "/bucket/agent":
		if s.asked++; s.asked == 1 {
			http.Redirect(w, r, s.thief+"/agent", http.StatusFound)
			return
		}

		fmt.Fprint(w, "agent")
	default:
		http.NotFound(w, r)
	}
}

// TestBootScriptGivesNoCredentialsAway: whoever runs the proxy of a network, or answers for S3, waits for the credentials of a
// booting machine. Seen to succeed with proxies of the environment, and with redirects.
func TestBootScriptGivesNoCredentialsAway(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not installed")
	}

	service := &bootService{}
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/latest/") || r.URL.Path == "/agent" {
			t.Errorf("the attacker got %s with %q", r.URL, r.Header)
		}

		service.ServeHTTP(w, r) // as a proxy does
	}))
	defer thief.Close()
	service.thief = thief.URL
	server := httptest.NewServer(service)
	defer server.Close()

	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	for _, dir := range []string{bin, filepath.Join(root, "dev")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	sum := sha256.Sum256([]byte("agent"))
	agentFile := node.Download{URL: "s3://bucket/agent", SHA256: hex.EncodeToString(sum[:])}
	script, err := node.UserData(node.BootConfig{
		Cluster:    "demo",
		Group:      "workers",
		Region:     "us-east-1",
		StoreOwner: "123456789012",
		Agent:      agentFile,
		Document:   agentFile,
	})
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "SLIPWAY_ROOT=" + root, "AWS_ENDPOINT_URL=" + server.URL,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + server.URL, "http_proxy=" + thief.URL,
	}
	if out, err := cmd.CombinedOutput(); err != nil || service.asked != 2 {
		t.Errorf("the machine did not boot: %v, %d requests for the agent\n%s", err, service.asked, out)
	}
}
