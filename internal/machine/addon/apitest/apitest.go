// SPDX-License-Identifier: Apache-2.0

// Package apitest starts a bare etcd and kube-apiserver, from the programs that 'slipway assets build' has built, for tests
// of packages that change objects of Kubernetes. There are no controllers and no nodes: tests set the status of objects.
package apitest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
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
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// Server is a running API server.
type Server struct {
	// URL of the server, which has a self-signed certificate.
	URL string
	// Token authenticates an administrator.
	Token string
	// Kubeconfig is a file with both.
	Kubeconfig string
}

// Options change the API server of a test.
type Options struct {
	// Issuer of the tokens of service accounts. Empty: https://issuer.example.
	Issuer string
	// SigningKey signs the tokens of service accounts, in PEM. Nil: a new key.
	SigningKey []byte
	// VerificationKey is the public half of SigningKey, in PEM. Nil: kube-apiserver derives it, if it is an RSA key.
	VerificationKey []byte
	// ClientCA is the authority of clients' certificates, in PEM. With it, kubelets have the rights that they have in a
	// cluster. Nil: clients have no certificates.
	ClientCA []byte
}

// Start starts an API server for a test. Without the programs the test is skipped, or fails if SLIPWAY_E2E is require.
func Start(t *testing.T) Server {
	t.Helper()

	return StartWith(t, Options{})
}

// StartWith is [Start] with options.
func StartWith(t *testing.T, o Options) Server {
	t.Helper()

	if o.SigningKey == nil {
		o.SigningKey = newKey(t)
	}

	kubernetes := assettest.Program(t, "kubernetes", "bin/kubernetes")
	etcd := assettest.Program(t, "etcd", "bin/etcd")
	dir := t.TempDir()
	ports := FreePorts(t, 3)
	clients := "http://127.0.0.1:" + ports[0]
	peers := "http://127.0.0.1:" + ports[1]
	Run(t, "etcd", etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)

	key := filepath.Join(dir, "sa.key")
	write(t, key, o.SigningKey)

	public := key
	if o.VerificationKey != nil {
		public = filepath.Join(dir, "sa.pub")
		write(t, public, o.VerificationKey)
	}

	token := rand.Text()
	tokens := filepath.Join(dir, "tokens.csv")
	write(t, tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"))
	flags := []string{
		"--etcd-servers=" + clients, "--bind-address=127.0.0.1", "--secure-port=" + ports[2], "--cert-dir=" + dir,
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-account-issuer=" + cmp.Or(o.Issuer, "https://issuer.example"), "--service-account-signing-key-file=" + key,
		"--service-account-key-file=" + public, "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount", "--token-auth-file=" + tokens,
	}

	Run(t, "kube-apiserver", kubernetes, append(flags, o.authorization(t, dir)...)...)

	s := Server{
		URL:        "https://127.0.0.1:" + ports[2],
		Token:      token,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
	}

	write(t, s.Kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, s.URL, filepath.Join(dir, "apiserver.crt"), s.Token))

	s.waitReady(t)

	return s
}

// authorization returns the flags that state who may do what.
func (o Options) authorization(t *testing.T, dir string) []string {
	t.Helper()

	if o.ClientCA == nil {
		return []string{"--authorization-mode=RBAC", "--allow-privileged=true"}
	}

	file := filepath.Join(dir, "clients.crt")
	write(t, file, o.ClientCA)

	return []string{
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--client-ca-file=" + file,
		"--allow-privileged=true",
	}
}

// waitReady waits until the server is ready and has its own namespaces.
func (s Server) waitReady(t *testing.T) {
	t.Helper()

	// The certificate does not exist before the server has started. The kubeconfig has it.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a server of this test on loopback
	}

	defer transport.CloseIdleConnections()

	client := &http.Client{Transport: transport}
	var err error
	for range 600 {
		err = errors.Join(s.get(t, client, "/readyz"), s.get(t, client, "/api/v1/namespaces/kube-system"))
		if err == nil {
			return
		}

		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // a test waits for a program
	}

	t.Fatalf("the API server does not become ready: %v", err)
}

// get returns an error if a path does not answer 200.
func (s Server) get(t *testing.T, client *http.Client, path string) error {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}

	req.Header.Set("Authorization", "Bearer "+s.Token)

	resp, err := client.Do(req)
	if err != nil {
		return err
	}

	_ = resp.Body.Close() // only the status counts
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}

	return nil
}

// FreePorts returns ports that nothing listens on.
func FreePorts(t *testing.T, n int) []string {
	t.Helper()

	var out []string
	var open []net.Listener

	for range n {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		open = append(open, listener) // so that the next port is another one

		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, port)
	}

	for _, listener := range open {
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}

	return out
}

// Run runs a program under a name until the test ends, and logs the end of what it wrote if the test failed.
func Run(t *testing.T, name, path string, args ...string) {
	t.Helper()

	out := &bytes.Buffer{}
	cmd := exec.Command(path, args...) //nolint:noctx // it ends with the test
	cmd.Args[0] = name
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout = out
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
		if t.Failed() {
			text := out.String()
			t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
}

// write writes a file that only its owner may read.
func write(t *testing.T, path string, content []byte) {
	t.Helper()

	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newKey returns a key that signs the tokens of service accounts.
func newKey(t *testing.T) []byte {
	t.Helper()

	const bits = 2048

	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}
