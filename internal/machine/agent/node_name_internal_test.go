// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// customHostname is local-hostname in a VPC whose DHCP options have two domain names.
	customHostname = "ip-10-80-0-4.corp.example second.example"
	// ec2Name is the same machine's name in EC2.
	ec2Name = "ip-10-80-0-4.ec2.internal"
)

// hostnameMetadata is the metadata service of an instance with a local-hostname.
type hostnameMetadata string

func (m hostnameMetadata) GetMetadata(_ context.Context, in *imds.GetMetadataInput, _ ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	values := map[string]string{
		"instance-id": "i-0123456789abcdef0", "local-ipv4": "127.0.0.1", "placement/availability-zone": "us-east-1a", "instance-type": "t3.large",
		"instance-life-cycle": "on-demand", "local-hostname": string(m),
	}
	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(values[in.Path]))}, nil
}

// startAgain returns the agent's next process on the same machine.
func startAgain(t *testing.T, a *Agent, hostname string) *Agent {
	t.Helper()
	next := a.withDocument(a.doc)
	next.Metadata = hostnameMetadata(hostname)
	if _, err := next.Root.Write(File{Path: "/proc/meminfo", Body: []byte("MemTotal: 4096000 kB\n"), Mode: 0o600, Shared: true}); err != nil {
		t.Fatal(err)
	}
	var err error
	if next.instance, err = ReadInstance(t.Context(), next.Metadata, next.Root); err != nil {
		t.Fatal(err)
	}
	return next
}

// serveJoinAt serves the join endpoint for one machine at an address. Its STS believes every proof.
func serveJoinAt(t *testing.T, a *Agent, address, name string) *http.Server {
	t.Helper()
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/demo-worker/`+a.instance.ID+`</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	}))
	t.Cleanup(sts.Close)
	endpoint := &join.Server{
		CA: a.bundle.CAs[pki.KubernetesCA], Cluster: "demo", WorkerRoles: map[string]string{"workers": "demo-worker"}, STSEndpoint: sts.URL,
		HTTP: sts.Client(), TTL: time.Hour, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		FindMachine: func(_ context.Context, id string) (join.Machine, bool, error) {
			return join.Machine{
				ID: id, Account: "123456789012", Name: name, Address: "127.0.0.1", State: "running", Role: "worker", Group: "workers", ScalingGroup: "workers.demo",
			}, true, nil
		},
		ActForMachine: func(ctx context.Context, m join.Machine, action join.LifecycleAction) (bool, error) {
			return actForMachine(ctx, a.Scaling, m, action)
		},
	}
	leaf := pki.Leaf{CN: "slipway-join", Usages: []pki.Usage{pki.ServerUsage}, TTL: time.Hour, IPs: []netip.Addr{netip.MustParseAddr(address)}}
	pair := newCertificateSource(a.bundle, pki.KubernetesCA, leaf, time.Now)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":"+join.Port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: endpoint, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair() }}}
	go server.ServeTLS(listener, "", "")
	t.Cleanup(func() { server.Close() })
	return server
}

// TestWorkerTakesItsNameFromEC2: no worker joined in a VPC whose DHCP options have a domain name: it asked for a
// certificate for its local-hostname, which is not its name in EC2.
func TestWorkerTakesItsNameFromEC2(t *testing.T) {
	const address = "127.77.0.8"
	first := testAgent(t)
	first.Boot.API.Internal = address
	first.Sign = join.Signer{Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""), Region: "us-east-1", Endpoint: "https://sts.example", Now: time.Now}
	server := serveJoinAt(t, first, address, ec2Name)
	a := startAgain(t, first, customHostname)
	if err := a.joinCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(a *Agent) {
		t.Helper()
		body, err := a.Root.Read(kube.PKIDir + "/kubelet.crt")
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.ParseCerts(body)
		if err != nil {
			t.Fatal(err)
		}
		if name := a.kubeConfig().NodeName; name != ec2Name || certs[0].VerifyHostname(ec2Name) != nil {
			t.Errorf("the kubelet's name is %q, its certificate is for %v, want %s", name, certs[0].DNSNames, ec2Name)
		}
	}
	check(a)
	before := len(a.Root.Changes())
	if err := a.renewNodeCertificates(t.Context()); err != nil || len(a.Root.Changes()) != before {
		t.Errorf("the certificates were renewed at once: %v %v", err, a.Root.Changes()[before:])
	}

	// The next process needs no control plane while its certificates are valid.
	server.Close()
	for _, hostname := range []string{customHostname, "ip-10-80-0-4.changed.example"} {
		next := startAgain(t, a, hostname)
		if err := next.joinCluster(t.Context()); err != nil {
			t.Fatalf("local-hostname %s: %v", hostname, err)
		}
		check(next)
	}

	// EC2 renamed the machine while it was stopped: its certificates were lost on the tmpfs.
	serveJoinAt(t, first, address, "i-0123456789abcdef0.ec2.internal")
	next := startAgain(t, a, "i-0123456789abcdef0.corp.example")
	if err := next.Root.RemoveAll(kube.PKIDir); err != nil {
		t.Fatal(err)
	}
	if err := next.joinCluster(t.Context()); err != nil || next.instance.Name != "i-0123456789abcdef0.ec2.internal" {
		t.Errorf("the renamed machine has the name %q: %v", next.instance.Name, err)
	}
}

// TestRunningWorkerKeepsItsName: the name of a node cannot change while its kubelet and its tasks run.
func TestRunningWorkerKeepsItsName(t *testing.T) {
	const address = "127.77.0.9"
	a := testAgent(t)
	a.Boot.API.Internal = address
	a.Sign = join.Signer{Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""), Region: "us-east-1", Endpoint: "https://sts.example", Now: time.Now}
	serveJoinAt(t, a, address, "ip-10-80-0-5.ec2.internal")
	err := a.renewNodeCertificates(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ip-10-80-0-5.ec2.internal") || a.instance.Name != ec2Name {
		t.Errorf("name %s, %v", a.instance.Name, err)
	}
}

// namingEC2 answers DescribeInstances with one name after the other; the last one remains. "-" is no instance, and
// "!" a failure.
type namingEC2 struct {
	EC2API
	names []string
	calls int
}

func (e *namingEC2) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	name := e.names[min(e.calls, len(e.names)-1)]
	e.calls++
	switch name {
	case "-":
		return &ec2.DescribeInstancesOutput{}, nil
	case "!":
		return nil, errors.New("EC2 does not answer")
	}
	return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{{
		InstanceId: aws.String("i-0123456789abcdef0"), PrivateDnsName: &name,
	}}}}}, nil
}

// TestControlPlaneTakesItsNameFromEC2: a control-plane machine registered its node with its local-hostname, and deleted
// it again, because no machine in EC2 has that name.
func TestControlPlaneTakesItsNameFromEC2(t *testing.T) {
	start := func(a *Agent, hostname string, names ...string) (*Agent, *namingEC2, error) {
		api := &namingEC2{names: names}
		next := startAgain(t, a, hostname)
		next.EC2 = api
		next.Wait = func(context.Context, time.Duration) error { return nil }

		return next, api, takeNodeName(t.Context(), next)
	}

	// EC2 lists a new instance late, and its name later.
	a, api, err := start(testAgent(t), customHostname, "-", "", "IP-10-80-0-4.ec2.internal")
	if err != nil || a.kubeConfig().NodeName != ec2Name || api.calls != 3 {
		t.Fatalf("name %q after %d calls: %v", a.kubeConfig().NodeName, api.calls, err)
	}
	for _, p := range controlPlanePairs(a.doc, a.Boot, a.instance, 0) {
		if strings.Contains(fmt.Sprint(p.leaf), "corp.example") {
			t.Errorf("certificate %s is for %v", p.path, p.leaf.DNS)
		}
	}

	for what, row := range map[string]struct {
		hostname string
		answer   string
		want     string
		calls    int
	}{
		"restarted without a network":         {customHostname, "!", ec2Name, 0},
		"other DHCP options":                  {"ip-10-80-0-4.changed.example", ec2Name, ec2Name, 1},
		"other DHCP options, without network": {"ip-10-80-0-4.changed.example", "!", ec2Name, 1},
		"renamed while it was stopped":        {"i-0123456789abcdef0.corp.example", "i-0123456789abcdef0.ec2.internal", "i-0123456789abcdef0.ec2.internal", 1},
	} {
		copied := testAgent(t)
		body, err := a.Root.Read(nodeNameFile)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := copied.Root.Write(File{Path: nodeNameFile, Body: body, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		next, api, err := start(copied, row.hostname, row.answer)
		if err != nil || next.instance.Name != row.want || api.calls != row.calls {
			t.Errorf("%s: name %q after %d calls: %v", what, next.instance.Name, api.calls, err)
		}
	}

	// A machine that boots from an image of another one does not have its name.
	other := testAgent(t)
	body := []byte(`{"instance":"i-other","hostname":"` + strings.Fields(customHostname)[0] + `","name":"ip-10-0-0-1.ec2.internal"}`)
	if _, err := other.Root.Write(File{Path: nodeNameFile, Body: body, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if next, _, err := start(other, customHostname, "!"); err == nil {
		t.Errorf("it took the name %q of another machine", next.instance.Name)
	}
}
