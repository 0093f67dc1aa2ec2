// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// longestConfig has a bucket name of 63 letters, the longest cluster name, and load balancer names
// in the format of AWS.
func longestConfig() node.BootConfig {
	h := strings.Repeat("0123456789abcdef", 4)
	base := "s3://company-production-kubernetes-state/" + "production-eu/machine/"
	return node.BootConfig{
		Cluster: "production-eu", Group: "control-plane", Role: node.RoleTagControlPlane, Slot: "a", Region: "eu-central-1", StoreOwner: "123456789012",
		Agent:    node.Download{URL: base + "agent/" + h + "/slipway-node", SHA256: h},
		Document: node.Download{URL: base + "controlplane/documents/control-plane-" + h + ".json", SHA256: h},
		API: node.APIEndpoints{
			Public:   "production-eu-api-0123456789abcdef.elb.eu-central-1.amazonaws.com",
			Internal: "production-eu-internal-0123456789abcdef.elb.eu-central-1.amazonaws.com",
		},
	}
}

func TestUserDataFits(t *testing.T) {
	data, err := node.UserData(longestConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("user data: %d of %d bytes", len(data), node.MaxUserDataBytes)
	if !strings.HasPrefix(data, "#!/usr/bin/python3\n") || strings.Contains(data, node.ConfigPlaceholder) {
		t.Errorf("user data is not a filled script:\n%s", data)
	}
}

// fakeCloud serves the metadata service and S3 from one address, checking the token and the
// signature.
type fakeCloud struct {
	t     *testing.T
	body  []byte
	mu    sync.Mutex
	fails int
	gets  int
	env   []string // more environment of the boot script
	to    string   // URL that the next object is redirected to
}

func (f *fakeCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut:
		fmt.Fprint(w, "tok")
	case strings.HasPrefix(r.URL.Path, "/latest/") && r.Header.Get("X-aws-ec2-metadata-token") != "tok":
		http.Error(w, "no token", http.StatusUnauthorized)
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "role\n")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/role":
		fmt.Fprint(w, `{"AccessKeyId":"AKID","SecretAccessKey":"SECRET","Token":"SESSION"}`)
	case r.URL.Path == "/bucket/x/agent":
		f.serveObject(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeCloud) serveObject(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	if err := checkSignature(r); err != nil {
		f.t.Error(err)
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if f.to != "" {
		http.Redirect(w, r, f.to, http.StatusFound)
		f.to = ""
		return
	}
	if f.fails > 0 {
		f.fails--
		http.Error(w, "SlowDown", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(f.body)
}

// checkSignature compares the signature with that of the AWS SDK's signer for the same request.
func checkSignature(r *http.Request) error {
	at, err := timeOf(r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	again, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.Host+r.URL.Path, nil)
	if err != nil {
		return err
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	again.Header.Set("X-Amz-Content-Sha256", hash)
	owner := r.Header.Get("X-Amz-Expected-Bucket-Owner")
	if owner != "123456789012" {
		return fmt.Errorf("S3 is not told whose bucket is expected: %q", owner)
	}
	again.Header.Set("X-Amz-Expected-Bucket-Owner", owner)
	creds := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(r.Context(), creds, again, hash, "s3", "us-east-1", at); err != nil {
		return err
	}
	if got, want := r.Header.Get("Authorization"), again.Header.Get("Authorization"); got != want {
		return fmt.Errorf("signature:\n got %s\nwant %s", got, want)
	}
	return nil
}

// runBoot runs user data with python3 in a fake root and returns the root, the console and whether
// it succeeded.
func runBoot(t *testing.T, cloud *fakeCloud, sha string) (root, console string, ok bool) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not installed")
	}
	srv := httptest.NewServer(cloud)
	defer srv.Close()
	root = t.TempDir()
	bin := filepath.Join(root, "fakebin")
	for _, dir := range []string{bin, filepath.Join(root, "dev")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	systemctl := "#!/bin/sh\necho \"$@\" >> " + root + "/systemctl.log\n"
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	c := longestConfig()
	c.Region = "us-east-1"
	c.Agent = node.Download{URL: "s3://bucket/x/agent", SHA256: sha}
	data, err := node.UserData(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", data)
	cmd.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "SLIPWAY_ROOT=" + root, "AWS_ENDPOINT_URL=" + srv.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + srv.URL,
	}
	cmd.Env = append(cmd.Env, cloud.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	t.Logf("output: %s", out.String())
	body, readErr := os.ReadFile(filepath.Join(root, "dev/console"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	return root, string(body), err == nil
}

func TestBootScriptInstallsTheAgent(t *testing.T) {
	cloud := &fakeCloud{t: t, body: []byte("agent"), fails: 1}
	sum := sha256.Sum256(cloud.body)
	root, console, ok := runBoot(t, cloud, hex.EncodeToString(sum[:]))
	if !ok {
		t.Fatalf("boot failed:\n%s", console)
	}
	agent, err := os.ReadFile(filepath.Join(root, "usr/local/bin/slipway-node"))
	if err != nil || string(agent) != "agent" {
		t.Errorf("agent: %q, %v", agent, err)
	}
	var c node.BootConfig
	body, err := os.ReadFile(filepath.Join(root, "etc/slipway/boot.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &c); err != nil || c.Slot != "a" {
		t.Errorf("boot.json: %+v, %v", c, err)
	}
	log, err := os.ReadFile(filepath.Join(root, "systemctl.log"))
	if err != nil || string(log) != "enable --no-reload slipway-node\nstart --no-block slipway-node\n" {
		t.Errorf("systemctl: %q, %v", log, err)
	}
	if !strings.Contains(console, "SlowDown") || !strings.Contains(console, `"state": "done"`) {
		t.Errorf("console:\n%s", console)
	}
}

func TestBootScriptRefusesAWrongHash(t *testing.T) {
	root, console, ok := runBoot(t, &fakeCloud{t: t, body: []byte("evil")}, strings.Repeat("0", 64))
	if ok {
		t.Error("boot succeeded")
	}
	if _, err := os.Stat(filepath.Join(root, "usr/local/bin/slipway-node")); !os.IsNotExist(err) {
		t.Errorf("agent was installed: %v", err)
	}
	if !strings.Contains(console, `"state": "failed"`) || !strings.Contains(console, "sha256 is") {
		t.Errorf("console:\n%s", console)
	}
}

// TestBootScriptUsesNoProxyForMetadata: a proxy of the environment does not see the credentials of the machine's role.
// It did before.
func TestBootScriptUsesNoProxyForMetadata(t *testing.T) {
	cloud := &fakeCloud{t: t, body: []byte("agent")}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/latest/") {
			t.Errorf("the proxy was asked for %s", r.URL.Path)
		}
		cloud.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	cloud.env = []string{"http_proxy=" + proxy.URL}
	sum := sha256.Sum256(cloud.body)
	if _, console, ok := runBoot(t, cloud, hex.EncodeToString(sum[:])); !ok {
		t.Errorf("boot failed:\n%s", console)
	}
}

// TestBootScriptFollowsNoRedirect: a redirect is not followed with the session token of the machine's role. It was
// before.
func TestBootScriptFollowsNoRedirect(t *testing.T) {
	cloud := &fakeCloud{t: t, body: []byte("agent")}
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed with the token %q", r.Header.Get("X-Amz-Security-Token"))
		_, _ = w.Write(cloud.body)
	}))
	defer thief.Close()
	cloud.to = thief.URL + "/agent"
	sum := sha256.Sum256(cloud.body)
	_, console, ok := runBoot(t, cloud, hex.EncodeToString(sum[:]))
	if !ok || cloud.gets != 2 {
		t.Errorf("boot succeeded: %t, after %d requests for the agent:\n%s", ok, cloud.gets, console)
	}
}

// TestBootScriptAsksS3OfItsPartition: the host name of S3 ended with amazonaws.com in every partition but aws-cn.
func TestBootScriptAsksS3OfItsPartition(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not installed")
	}
	srv := httptest.NewServer(&fakeCloud{t: t})
	defer srv.Close()
	const spy = `
import urllib.request as U
get=U.urlopen
def spy(r,timeout):
 if r.host.startswith('s3.'):
  print(r.full_url)
  raise SystemExit
 return get(r,timeout=timeout)
U.urlopen=spy
`
	for region, want := range map[string]string{
		"us-east-1":      "https://s3.us-east-1.amazonaws.com/bucket/x/agent",
		"us-gov-west-1":  "https://s3.us-gov-west-1.amazonaws.com/bucket/x/agent",
		"cn-north-1":     "https://s3.cn-north-1.amazonaws.com.cn/bucket/x/agent",
		"us-isob-east-1": "https://s3.us-isob-east-1.sc2s.sgov.gov/bucket/x/agent",
		"eusc-de-east-1": "https://s3.eusc-de-east-1.amazonaws.eu/bucket/x/agent",
	} {
		c := longestConfig()
		c.Region = region
		c.Agent.URL = "s3://bucket/x/agent"
		data, err := node.UserData(c)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), python, "-c", spy+data)
		cmd.Env = []string{"SLIPWAY_ROOT=" + root, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + srv.URL}
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %s, %v; want %s", region, out, err, want)
		}
	}
}
