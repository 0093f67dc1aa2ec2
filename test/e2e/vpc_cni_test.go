// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// vpcCNIPods is how many pods a t3.medium has addresses for: three interfaces of six, of which the first is the interface's own, and two
// pods in the network of the machine.
const vpcCNIPods = 17

// TestVPCCNI creates examples/vpc-cni.yaml with the unchanged programs of the Amazon VPC CNI. Pods of two machines reach each other at
// addresses of the VPC, by themselves and through a Service; policies isolate them; they have no rights in AWS; a node takes as many pods as it
// has addresses, on all of its interfaces; and a deletion leaves no interface.
func TestVPCCNI(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createVPCCNICluster},
		{"pods have addresses of their machines", checkPodAddresses},
		{"pods talk across workers", checkPodNetwork},
		{"no container reaches the machine's role", func(e *environment) { checkIntruders(e, 3) }},
		{"a pod has no rights in AWS", checkNoRights},
		{"a node takes as many pods as it has addresses", fillNode},
		{"what the CNI changes is no drift", checkNoDrift},
		{"delete leaves nothing", deleteVPCCNICluster},
	})
}

// createVPCCNICluster creates the cluster. Its boundary is what 'slipway iam boundary' prints, as an administrator applies it.
func createVPCCNICluster(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("iam", "init-discovery", discoveryStore, "--yes")
	body, err := os.ReadFile("../../examples/vpc-cni.yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	text := strings.NewReplacer("\n  name: vpc-cni\n", "\n  name: "+clusterName+"\n", "s3://example-oidc/prod", discoveryStore).Replace(string(body))
	file := filepath.Join(e.t.TempDir(), "vpc-cni.yaml")
	writeFile(e.t, file, text)
	e.runSlipway("create", "-f", file, "--yes")
	e.applyBoundary()
	begin := time.Now()
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.t.Logf("COUNT with the Amazon VPC CNI, the cluster is healthy after %s", time.Since(begin).Round(time.Second))
	e.exportKubeconfig()
	if names, err := e.readyNodes(); err != nil || len(names) != 3 {
		e.t.Fatalf("%d Ready nodes, want 3: %v %v", len(names), names, err)
	}
}

// applyBoundary makes the permissions boundary of the store what 'slipway iam boundary' prints. It has statements for the CNI.
func (e *environment) applyBoundary() {
	e.t.Helper()
	r := e.runProgram(e.slipway, "iam", "boundary", "-o", "json")
	var printed struct {
		ARN      string          `json:"arn"`
		Document json.RawMessage `json:"document"`
	}
	if err := json.Unmarshal([]byte(r.out), &printed); err != nil || !strings.Contains(string(printed.Document), "CNICreate") {
		e.t.Fatalf("exit status %d, %v: the boundary has no statement for the CNI:\n%s%s", r.code, err, r.out, r.err)
	}
	e.setBoundary(printed.ARN, string(printed.Document))
}

// vpcAddress is an address of a network interface.
type vpcAddress struct {
	machine   string
	device    int32
	isPrimary bool
}

// vpcAddresses returns the addresses of all interfaces of the cluster's running machines.
func (e *environment) vpcAddresses() map[string]vpcAddress {
	e.t.Helper()
	list, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}},
		{Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[string]vpcAddress{}
	for _, r := range list.Reservations {
		for _, i := range r.Instances {
			for _, n := range i.NetworkInterfaces {
				for _, a := range n.PrivateIpAddresses {
					out[*a.PrivateIpAddress] = vpcAddress{*i.InstanceId, *n.Attachment.DeviceIndex, *a.Primary}
				}
			}
		}
	}

	return out
}

// podPlace is where a pod is.
type podPlace struct{ name, address, node string }

// podsOf returns the pods with a network of their own that a selector selects in all namespaces; empty: all.
func (e *environment) podsOf(selector string) []podPlace {
	e.t.Helper()
	out := e.kubectl("get", "pods", "-A", "-l", selector, "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.status.podIP} {.spec.nodeName} {.spec.hostNetwork} {.status.phase}{"\n"}{end}`)
	var pods []podPlace
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 4 && fields[3] == "Running" { // a pod without a network of its own has one more
			pods = append(pods, podPlace{fields[0], fields[1], fields[2]})
		}
	}

	return pods
}

// checkAddresses checks that pods have secondary addresses of the interfaces of their own machines, and returns the interfaces used.
func (e *environment) checkAddresses(pods []podPlace) (devices []int32) {
	e.t.Helper()
	known := e.vpcAddresses()
	for _, p := range pods {
		a, ok := known[p.address]
		machine, _, _ := strings.Cut(p.node, ".") // nodes are named by their instances
		if !ok || a.isPrimary || a.machine != machine {
			e.t.Errorf("pod %s on %s has the address %s, which is %+v", p.name, p.node, p.address, a)
		}
		devices = append(devices, a.device)
	}
	slices.Sort(devices)

	return slices.Compact(devices)
}

// checkPodAddresses checks the addresses of CoreDNS, the number of pods that nodes take, and that the overlay's parts are not there.
func checkPodAddresses(e *environment) {
	pods := e.podsOf("k8s-app=kube-dns")
	if len(pods) != 2 {
		e.t.Fatalf("%d pods of CoreDNS run, want 2: %v", len(pods), pods)
	}
	e.checkAddresses(pods)
	vpc := netip.MustParsePrefix("10.80.0.0/16")
	for _, p := range pods {
		if a, err := netip.ParseAddr(p.address); err != nil || !vpc.Contains(a) {
			e.t.Errorf("pod %s has the address %s, want one of %s", p.name, p.address, vpc)
		}
	}

	got := strings.Fields(e.kubectl("get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "jsonpath={.items[*].status.allocatable.pods}"))
	want := []string{strconv.Itoa(vpcCNIPods), strconv.Itoa(vpcCNIPods)}
	if !slices.Equal(got, want) {
		e.t.Errorf("the workers take %v pods, want %v", got, want)
	}
	if ranges := e.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.podCIDR}"); ranges != "" {
		e.t.Errorf("nodes have the ranges %s", ranges)
	}
	if r := e.tryKubectl("get", "-n", "kube-system", "daemonset/flannel"); r.code == 0 {
		e.t.Error("flannel runs")
	}
	if links := e.mustRunInMachine(e.anyMachine("worker"), "ip -o link"); strings.Contains(links, "flannel") || strings.Contains(links, "cni0") {
		e.t.Errorf("a machine has links of the overlay:\n%s", links)
	}
}

// checkNoRights: a pod has neither the role of its machine nor that of the CNI. The loopback address that serves the CNI is that of its
// machine, and has no credentials.
func checkNoRights(e *environment) {
	pod := strings.TrimPrefix(e.podsOf("app=probe")[0].name, "default/")
	for _, url := range []string{"http://169.254.169.254/latest/meta-data/iam/security-credentials/", "http://127.0.0.1:3989/latest/meta-data/mac"} {
		if r := e.tryKubectl("exec", pod, "--", "/probe", "get", url); r.code == 0 {
			e.t.Errorf("a pod reads %s: %s", url, r.out)
		}
	}
	if out := e.tryKubectl("exec", pod, "--", "/probe", "env"); strings.Contains(out.out, "AWS_") {
		e.t.Errorf("a pod has settings of AWS: %s", out.out)
	}
	script := `curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3989/latest/meta-data/mac; ` +
		`curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:3989/latest/meta-data/iam/security-credentials/`
	if got := e.mustRunInMachine(e.anyMachine("worker"), script); got != "200 404" {
		e.t.Errorf("the agent answers for an address and for credentials with %q, want 200 404", got)
	}
}

// fillerManifest are more pods than one worker takes.
const fillerManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: filler, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: filler}}
  template:
    metadata: {labels: {app: filler}}
    spec:
      automountServiceAccountToken: false
      nodeSelector: {kubernetes.io/hostname: %s}
      terminationGracePeriodSeconds: 1
      containers:
      - name: filler
        image: %s
        args: [serve, ":8080"]
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
`

// fillNode fills a worker. Its pods have addresses of more than one interface, each of which a pod of the other worker reaches; the pods
// that are too many wait.
func fillNode(e *environment) {
	probes := e.podsOf("app=probe")
	full, other := probes[0], probes[1]
	host := e.kubectl("get", "node", full.node, "-o", `jsonpath={.metadata.labels.kubernetes\.io/hostname}`)
	file := filepath.Join(e.t.TempDir(), "filler.yaml")
	writeFile(e.t, file, fmt.Sprintf(fillerManifest, vpcCNIPods+5, host, probeImage))
	e.kubectl("apply", "-f", file)
	onNode := func() int {
		out := e.kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName="+full.node+",status.phase=Running", "-o", "name")
		return len(strings.Fields(out))
	}
	begin := time.Now()
	e.waitUntil("the node is full", 3*time.Minute, func() error {
		if n := onNode(); n != vpcCNIPods {
			return fmt.Errorf("%d pods run there, want %d", n, vpcCNIPods)
		}

		return nil
	})
	e.t.Logf("COUNT a worker is full after %s", time.Since(begin).Round(time.Second))
	pods := e.podsOf("app=filler")
	if devices := e.checkAddresses(pods); len(devices) < 2 {
		e.t.Errorf("%d pods have addresses of the interfaces %v only", len(pods), devices)
	}
	from := strings.TrimPrefix(other.name, "default/")
	for _, p := range pods {
		e.waitUntil("pod "+p.name+" at "+p.address+" answers the other worker", 30*time.Second, func() error {
			r := e.tryKubectl("exec", from, "--", "/probe", "get", "http://"+p.address+":8080/hostname")
			if r.code != 0 || "default/"+strings.TrimSpace(r.out) != p.name {
				return fmt.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
			}

			return nil
		})
	}

	// A pod of the second interface reaches the Service, CoreDNS and the API.
	known := e.vpcAddresses()
	second := slices.IndexFunc(pods, func(p podPlace) bool { return known[p.address].device > 0 })
	if second >= 0 {
		name := strings.TrimPrefix(pods[second].name, "default/")
		if got := e.kubectl("exec", name, "--", "/probe", "get", "http://probe.default.svc.cluster.local/hostname"); !strings.Contains(got, "probe-") {
			e.t.Errorf("a pod of interface %d gets %q from the Service", known[pods[second].address].device, got)
		}
	}
	if waiting := e.kubectl("get", "pods", "-l", "app=filler", "--field-selector", "status.phase=Pending", "-o", "name"); waiting == "" {
		e.t.Error("no pod waits, though there are more than the node takes")
	}
	e.kubectl("delete", "-f", file, "--wait")
}

// checkNoDrift: what controllers in the cluster have made is their own, and no drift.
func checkNoDrift(e *environment) {
	if r := e.runProgram(e.slipway, "drift", clusterName); r.code != 0 {
		e.t.Errorf("drift has exit status %d, want 0:\n%s%s", r.code, r.out, r.err)
	}
}

// deleteVPCCNICluster deletes the cluster, after which no interface of the CNI is left.
func deleteVPCCNICluster(e *environment) {
	deleteCluster(e)
	left, err := ec2.NewFromConfig(e.aws).DescribeNetworkInterfaces(e.t.Context(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:cluster.k8s.amazonaws.com/name"), Values: []string{clusterName}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, n := range left.NetworkInterfaces {
		e.t.Errorf("interface %s is left: %s", *n.NetworkInterfaceId, aws.ToString(n.Description))
	}
}
