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

// newMachineDialer returns a function that dials from a machine's network namespace, with the VPC's
// DNS resolver.
func (l *environment) newMachineDialer(id string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	path := "/run/netns/slw-" + l.readSettings().ID + "-" + id
	enter := func(dial func() (net.Conn, error)) (net.Conn, error) {
		runtime.LockOSThread() // stays locked if the way back fails, so that the thread ends with its goroutine
		home, err := netns.Get()
		if err != nil {
			return nil, err
		}
		defer home.Close()
		there, err := netns.GetFromPath(path)
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
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return enter(func() (net.Conn, error) { return net.Dial("udp", "169.254.169.253:53") })
	}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		addrs, err := resolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		return enter(func() (net.Conn, error) {
			return net.DialTimeout(network, net.JoinHostPort(addrs[0], port), 5*time.Second)
		})
	}
}

// newCSR returns a certificate request for the name of a node.
func newCSR(l *environment, node string) string {
	l.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}, key)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// newJoinProof returns a signed GetCallerIdentity request that is bound to a certificate request,
// as the join endpoint requires.
func newJoinProof(l *environment, cfg aws.Config, forCSR string) string {
	l.t.Helper()
	creds, err := cfg.Credentials.Retrieve(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	// Machines use this address of the region, and the signature covers it.
	req, err := http.NewRequest(http.MethodGet, "http://198.18.0.1/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=60", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(forCSR))
	req.Header.Set("X-Slipway-Csr-Sha256", hex.EncodeToString(sum[:]))
	none := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(l.t.Context(), creds, req, hex.EncodeToString(none[:]), "sts", region, time.Now())
	if err != nil {
		l.t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		l.t.Fatal(err)
	}
	return u.RawQuery
}

// checkWorkerCertificate calls the join endpoint from a worker's network. It requests the worker's
// own certificate, which it gets, and certificates of other nodes, which the endpoint must deny.
func checkWorkerCertificate(l *environment) {
	nodes := map[string]string{} // by machine
	out, err := ec2.NewFromConfig(l.aws).DescribeInstances(l.t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			nodes[*i.InstanceId] = aws.ToString(i.PrivateDnsName)
		}
	}
	var ids []string
	for id := range l.listMachines("worker") {
		ids = append(ids, id)
	}
	if len(ids) != 2 {
		l.t.Fatalf("%d workers, want 2", len(ids))
	}
	mine, other := nodes[ids[0]], nodes[ids[1]]
	cfg := l.fetchWorkerCredentials(ids[0])
	own, foreign := newCSR(l, mine), newCSR(l, other)
	tests := []struct {
		name, csr, proof string
		want             int
	}{
		{"its own certificate", own, newJoinProof(l, cfg, own), http.StatusOK},
		{"another worker's certificate", foreign, newJoinProof(l, cfg, foreign), http.StatusForbidden},
		{"a control-plane machine's certificate", newCSR(l, nodes[l.anyMachine("control-plane")]), newJoinProof(l, cfg, own), http.StatusForbidden},
		{"another key under an old proof", newCSR(l, mine), newJoinProof(l, cfg, own), http.StatusForbidden},
		{"a certificate for a caller that is not a machine", own, newJoinProof(l, l.aws, own), http.StatusForbidden},
		{"a certificate without a proof", own, "", http.StatusForbidden},
	}
	for _, tt := range tests {
		code, body := l.postJoin(ids[0], tt.csr, tt.proof)
		if code != tt.want {
			l.t.Errorf("%s: %d %s, want %d", tt.name, code, body, tt.want)
		}
		l.t.Logf("%s: %d %s", tt.name, code, clipLog(body))
	}
}

func (l *environment) anyMachine(role string) string {
	l.t.Helper()
	for id := range l.listMachines(role) {
		return id
	}
	l.t.Fatalf("no machine of role %s", role)
	return ""
}

// postJoin posts to the join endpoint through the internal load balancer, from a machine's network.
func (l *environment) postJoin(from, request, proof string) (int, string) {
	l.t.Helper()
	lbs, err := elasticloadbalancingv2.NewFromConfig(l.aws).DescribeLoadBalancers(l.t.Context(), &elasticloadbalancingv2.DescribeLoadBalancersInput{Names: []string{clusterName + "-internal"}})
	if err != nil {
		l.t.Fatal(err)
	}
	body, err := json.Marshal(map[string]string{"csr": request, "proof": proof})
	if err != nil {
		l.t.Fatal(err)
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: l.newMachineDialer(from), TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Post("https://"+*lbs.LoadBalancers[0].DNSName+":3988/v1/node-certificate", "application/json", bytes.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(answer))
}

// checkWrongHash creates a second cluster whose catalogue contains a wrong hash of the kubelet. Its
// machines must reject the file, and validate must report it.
func checkWrongHash(l *environment) {
	const name = "e2e-bad"
	catalogue, err := os.ReadFile(filepath.Join(l.cache, "assets", "catalog.yaml"))
	if err != nil {
		l.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(catalogue), "name: kubelet\n  sha256: ")
	if !ok {
		l.t.Fatal("no kubelet in the catalogue")
	}
	hash := rest[:64]
	file := filepath.Join(l.t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(catalogue), hash, strings.Repeat("0f", 32))), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.runSlipway("create", "cluster", name, "--zones", region+"a", "--control-plane-count", "1", "--worker-count", "1", "--network-cidr", "10.90.0.0/16", "--assets", file, "--yes")
	l.runSlipway("apply", name, "--yes")
	l.waitUntil("validate names the wrong hash", 90*time.Second, func() error {
		r := l.runProgram(l.slipway, "validate", "cluster", name, "-o", "json")
		if r.code != 2 || !strings.Contains(r.out, hash) || !strings.Contains(r.out, "kubelet") {
			return os.ErrNotExist
		}
		return nil
	})
	l.runSlipway("delete", "cluster", name, "--yes")
}
