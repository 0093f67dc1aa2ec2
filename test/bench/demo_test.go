// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// TestDemo measures 'slipway demo' with built assets, and compares it with the start of one bare etcd and one bare
// kube-apiserver on the same computer in the same run: seconds depend on the computer, the ratio less.
func TestDemo(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: machines need root on Linux")
	}
	shared := sharedCache(t)
	bare := min(startBareControlPlane(t, shared), startBareControlPlane(t, shared))
	timeline := runDemo(t, shared)
	for _, what := range []string{"assets", "region", "applied", "first API answer", "all Ready"} {
		at, ok := timeline[what]
		if !ok {
			t.Fatalf("the demo's timeline lacks %q: %v", what, timeline)
		}
		fmt.Printf("COUNT demo: %s after %.1f s\n", what, at)
	}
	fmt.Printf("COUNT demo: a bare etcd and kube-apiserver were ready after %.1f s; the demo took %.1f times as long\n",
		bare.Seconds(), timeline["all Ready"]/bare.Seconds())
}

// sharedCache returns the folder with the built assets and images.
func sharedCache(t *testing.T) string {
	t.Helper()
	shared := os.Getenv("SLIPWAY_CACHE")
	if shared == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		shared = filepath.Join(home, "slipway")
	}
	for _, part := range []string{"assets/catalog.yaml", "image"} {
		if _, err := os.Stat(filepath.Join(shared, part)); err != nil {
			t.Skipf("SKIPPED: there is no %s: make assets", filepath.Join(shared, part))
		}
	}
	return shared
}

// runDemo runs the demo in a cache of its own, with the assets and images of shared, and returns its timeline in
// seconds.
func runDemo(t *testing.T, shared string) map[string]float64 {
	t.Helper()
	path := filepath.Join(repositoryRoot(t), "bin", "slipway")
	if _, err := os.Stat(path); err != nil {
		t.Skip("SKIPPED: there is no bin/slipway: make build")
	}
	cache := filepath.Join(shared, "bench")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"assets", "image"} {
		err := os.Symlink(filepath.Join(shared, name), filepath.Join(cache, name))
		if err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	x := program{path: path, dir: repositoryRoot(t), env: []string{"HOME=" + cache, "SLIPWAY_CACHE=" + cache, "GOPATH=" + goEnv(t, "GOPATH"), "GOCACHE=" + goEnv(t, "GOCACHE")}}
	t.Cleanup(func() { x.mustRun(t, []int{0}, "region", "destroy", "--yes") })
	r := x.mustRun(t, []int{0}, "demo", "--yes")
	timeline := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^  (\S.*?) +([0-9.]+) s$`).FindAllStringSubmatch(r.errs+r.out, -1) {
		if at, err := strconv.ParseFloat(m[2], 64); err == nil {
			timeline[m[1]] = at
		}
	}
	return timeline
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// startBareControlPlane starts etcd and kube-apiserver without anything around them, and returns the time until the
// API server is ready, which it tells everybody: with AlwaysAllow it would not, since that turns anonymous requests off. Both have ended when it returns.
func startBareControlPlane(t *testing.T, shared string) time.Duration {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "service-account.key")
	if err := os.WriteFile(key, newPrivateKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	etcdURL, peerURL, api := "http://"+freeAddress(t), "http://"+freeAddress(t), freeAddress(t)
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	stopEtcd := startProgram(t, "etcd", assettest.ProgramIn(t, shared, "etcd", "bin/etcd"), "--data-dir="+dir+"/etcd",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL, "--listen-peer-urls="+peerURL,
		"--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL)
	defer stopEtcd()
	stopAPI := startProgram(t, "kube-apiserver", assettest.ProgramIn(t, shared, "kubernetes", "bin/kubernetes"),
		"--etcd-servers="+etcdURL, "--cert-dir="+dir+"/certs", "--bind-address=127.0.0.1", "--secure-port="+port,
		"--authorization-mode=RBAC", "--service-account-issuer=https://bench.internal",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key, "--service-cluster-ip-range=10.96.0.0/16")
	defer stopAPI()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // its certificate is made at its start
	}}
	for deadline := start.Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		resp, err := client.Get("https://" + api + "/readyz")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return time.Since(start)
		}
	}
	t.Fatal("a bare kube-apiserver was not ready within 2 minutes")
	return 0
}

// startProgram starts a program under a name, and returns what stops it.
func startProgram(t *testing.T, name, path string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Args[0] = name
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", name, clipTail(out.String()))
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newPrivateKey returns a new private key in PEM.
func newPrivateKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
