// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/vishvananda/netns"
)

// namespaceOf returns the file of a machine's network namespace.
func (e *environment) namespaceOf(id string) string {
	return "/run/netns/slw-" + e.readSettings().ID + "-" + id
}

// dialIn calls dial in a network namespace.
func dialIn(namespace string, dial func() (net.Conn, error)) (net.Conn, error) {
	runtime.LockOSThread() // stays locked if the way back fails, so that the thread ends with its goroutine
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	there, err := netns.GetFromPath(namespace)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	conn, err := dial()
	if back := netns.Set(home); back == nil {
		runtime.UnlockOSThread()
	}
	return conn, err
}

// newMachineResolver returns a resolver that asks the VPC's from a machine's network namespace.
func (e *environment) newMachineResolver(id string) *net.Resolver {
	namespace := e.namespaceOf(id)
	return &net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
		return dialIn(namespace, func() (net.Conn, error) { return net.Dial(network, "169.254.169.253:53") })
	}}
}

// newMachineDialer returns a function that dials from a machine's network namespace, with the VPC's
// DNS resolver.
func (e *environment) newMachineDialer(id string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	namespace := e.namespaceOf(id)
	resolver := e.newMachineResolver(id)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		addrs, err := resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		return dialIn(namespace, func() (net.Conn, error) {
			return net.DialTimeout(network, net.JoinHostPort(addrs[0], port), 5*time.Second)
		})
	}
}

// newCSR returns a certificate request for the name of a node.
func newCSR(e *environment, node string) string {
	e.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}, key)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// newJoinProof returns a signed GetCallerIdentity request that is bound to a certificate request,
// as the join endpoint requires.
func newJoinProof(e *environment, cfg aws.Config, forCSR string) string {
	e.t.Helper()
	creds, err := cfg.Credentials.Retrieve(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	// Machines use this address of the region, and the signature covers it.
	req, err := http.NewRequest(http.MethodGet, "http://198.18.0.1/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=60", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(forCSR))
	req.Header.Set("X-Slipway-Csr-Sha256", hex.EncodeToString(sum[:]))
	none := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(e.t.Context(), creds, req, hex.EncodeToString(none[:]), "sts", region, time.Now())
	if err != nil {
		e.t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		e.t.Fatal(err)
	}
	return u.RawQuery
}

// checkWorkerCertificate calls the join endpoint from a worker's network. It requests the worker's
// own certificate, which it gets, and certificates of other nodes, which the endpoint must deny.
func checkWorkerCertificate(e *environment) {
	nodes := map[string]string{} // by machine
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			nodes[*i.InstanceId] = aws.ToString(i.PrivateDnsName)
		}
	}
	var ids []string
	for id := range e.listMachines("worker") {
		ids = append(ids, id)
	}
	if len(ids) != 2 {
		e.t.Fatalf("%d workers, want 2", len(ids))
	}
	mine, other := nodes[ids[0]], nodes[ids[1]]
	cfg := e.fetchWorkerCredentials(ids[0])
	own, foreign := newCSR(e, mine), newCSR(e, other)
	tests := []struct {
		name, csr, proof string
		want             int
	}{
		{"its own certificate", own, newJoinProof(e, cfg, own), http.StatusOK},
		{"another worker's certificate", foreign, newJoinProof(e, cfg, foreign), http.StatusForbidden},
		{"a control-plane machine's certificate", newCSR(e, nodes[e.anyMachine("control-plane")]), newJoinProof(e, cfg, own), http.StatusForbidden},
		{"another key under an old proof", newCSR(e, mine), newJoinProof(e, cfg, own), http.StatusForbidden},
		{"a certificate for a caller that is not a machine", own, newJoinProof(e, e.aws, own), http.StatusForbidden},
		{"a certificate without a proof", own, "", http.StatusForbidden},
	}
	for _, tt := range tests {
		code, body := e.postJoin(ids[0], tt.csr, tt.proof)
		if code != tt.want {
			e.t.Errorf("%s: %d %s, want %d", tt.name, code, body, tt.want)
		}
		e.t.Logf("%s: %d %s", tt.name, code, clipLog(body))
	}
}

func (e *environment) anyMachine(role string) string {
	e.t.Helper()
	for id := range e.listMachines(role) {
		return id
	}
	e.t.Fatalf("no machine of role %s", role)
	return ""
}

// dialAsRoot dials from a machine's network as root there, who first removes the rules by which the agent keeps others from the join
// endpoint. The agent restores them every few seconds.
func (e *environment) dialAsRoot(id string, dial func() (net.Conn, error)) (conn net.Conn, err error) {
	for range 5 {
		_ = exec.Command("ip", "netns", "exec", filepath.Base(e.namespaceOf(id)), "nft", "delete", "table", "inet", "slipway_metadata").Run()
		if conn, err = dial(); err == nil {
			break
		}
	}
	return conn, err
}

// joinEndpoint returns the URL of the join endpoint at the internal load balancer.
func (e *environment) joinEndpoint() string {
	e.t.Helper()
	lbs, err := elasticloadbalancingv2.NewFromConfig(e.aws).DescribeLoadBalancers(e.t.Context(), &elasticloadbalancingv2.DescribeLoadBalancersInput{Names: []string{clusterName + "-internal"}})
	if err != nil {
		e.t.Fatal(err)
	}
	return "https://" + *lbs.LoadBalancers[0].DNSName + ":3988"
}

// postJoin posts to the join endpoint through the internal load balancer, from a machine's network.
func (e *environment) postJoin(from, request, proof string) (int, string) {
	e.t.Helper()
	body, err := json.Marshal(map[string]string{"csr": request, "proof": proof})
	if err != nil {
		e.t.Fatal(err)
	}
	dial := e.newMachineDialer(from)
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return e.dialAsRoot(from, func() (net.Conn, error) { return dial(ctx, network, addr) })
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Post(e.joinEndpoint()+"/v1/node-certificate", "application/json", bytes.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(answer))
}

// checkWrongHash creates a second cluster whose catalogue contains a wrong hash of the kubelet. Its
// machines must reject the file, and validate must report it.
func checkWrongHash(e *environment) {
	skipUnlessLong(e.t)
	const name = "e2e-bad"
	catalogue, err := os.ReadFile(filepath.Join(e.cache, "assets", "catalog.yaml"))
	if err != nil {
		e.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(catalogue), "name: kubelet\n  sha256: ")
	if !ok {
		e.t.Fatal("no kubelet in the catalogue")
	}
	hash := rest[:64]
	file := filepath.Join(e.t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(catalogue), hash, strings.Repeat("0f", 32))), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.runSlipway("create", "cluster", name, "--zones", region+"a", "--control-plane-count", "1", "--worker-count", "1", "--network-cidr", "10.90.0.0/16", "--assets", file, "--yes")
	e.runSlipway("apply", name, "--yes")
	e.waitUntil("validate names the wrong hash", 90*time.Second, func() error {
		r := e.runProgram(e.slipway, "validate", "cluster", name, "-o", "json")
		if r.code != 2 || !strings.Contains(r.out, hash) || !strings.Contains(r.out, "kubelet") {
			return os.ErrNotExist
		}
		return nil
	})
	e.runSlipway("delete", "cluster", name, "--yes")
}
