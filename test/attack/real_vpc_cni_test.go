// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// ipamDaemon is the program of the Amazon VPC CNI that attaches interfaces and assigns addresses.
const ipamDaemon = "aws-k8s-agent"

// realIPAM is a kube-apiserver with the real IPAM daemon of a worker next to it, in a network namespace in the place of the machine.
type realIPAM struct {
	vpcCNILab
	realAPI
	program, machine string
	metadata         string
}

// newRealIPAM prepares a worker. The daemon does not run yet.
func newRealIPAM(t *testing.T) realIPAM {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	for _, name := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("SKIPPED: " + name + " is not installed")
		}
	}
	program := assettest.Program(t, "amazon-vpc-cni", "bin/"+ipamDaemon)
	v := newVPCCNILab(t)
	r := realIPAM{vpcCNILab: v, realAPI: startRealAPI(t, signWith(t, v.key, podIssuer)), program: program, machine: fmt.Sprintf("slwt%dc", os.Getpid())}
	metadata := httptest.NewServer(v.region.Metadata(t, *v.worker.VpcId, *v.worker.PrivateIpAddress))
	t.Cleanup(metadata.Close)
	r.metadata = metadata.URL
	r.createMachine()
	for _, address := range []string{r.region.URL, r.config.Host, r.metadata} {
		r.forward(address)
	}
	r.createAccount()
	r.registerNode()

	return r
}

func (r *realIPAM) ip(arguments ...string) {
	r.Helper()
	if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		r.Fatalf("ip %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

// addLink gives the machine a link, whose other end nobody serves.
func (r *realIPAM) addLink(device, mac string) {
	r.Helper()
	r.ip("-n", r.machine, "link", "add", device, "address", mac, "type", "veth", "peer", "name", "wire"+device)
	r.ip("-n", r.machine, "link", "set", "wire"+device, "up")
}

// createMachine creates the namespace with the worker's primary interface.
func (r *realIPAM) createMachine() {
	r.Helper()
	n := r.worker.NetworkInterfaces[0]
	r.ip("netns", "add", r.machine)
	r.Cleanup(func() { _ = exec.Command("ip", "netns", "del", r.machine).Run() })
	r.ip("-n", r.machine, "link", "set", "lo", "up")
	r.addLink("eth0", *n.MacAddress)
	r.ip("-n", r.machine, "addr", "add", *n.PrivateIpAddress+"/24", "dev", "eth0")
	r.ip("-n", r.machine, "link", "set", "eth0", "up")
}

// forward lets programs of the machine reach an address of the host under the same name.
func (r *realIPAM) forward(address string) {
	r.Helper()
	u, err := url.Parse(address)
	r.check(err)
	inNamespace(r.T, r.machine, func() {
		acceptAt(r.T, "tcp4", u.Host, func(c net.Conn) {
			go func() {
				defer c.Close()
				out, err := net.Dial("tcp4", u.Host)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(out, c) }()
				_, _ = io.Copy(c, out)
			}()
		})
	})
}

// createAccount creates the account of the daemon with the rights that it needs.
func (r *realIPAM) createAccount() {
	r.Helper()
	_, err := r.api.CoreV1().ServiceAccounts("kube-system").Create(r.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: vpcCNIAccount}}, metav1.CreateOptions{})
	r.check(err)
	_, err = r.api.RbacV1().ClusterRoles().Create(r.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: vpcCNIAccount},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		},
	}, metav1.CreateOptions{})
	r.check(err)
	_, err = r.api.RbacV1().ClusterRoleBindings().Create(r.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: vpcCNIAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: vpcCNIAccount},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: vpcCNIAccount, Namespace: "kube-system"}},
	}, metav1.CreateOptions{})
	r.check(err)
}

// registerNode creates the Node of the worker.
func (r *realIPAM) registerNode() {
	r.Helper()
	made, err := r.api.CoreV1().Nodes().Create(r.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: *r.worker.PrivateDnsName}}, metav1.CreateOptions{})
	r.check(err)
	made.Status.Capacity = corev1.ResourceList{"pods": resource.MustParse("17")}
	made.Status.Allocatable = made.Status.Capacity
	_, err = r.api.CoreV1().Nodes().UpdateStatus(r.Context(), made, metav1.UpdateOptions{})
	r.check(err)
}

// described returns the worker as EC2 shows it.
func (r *realIPAM) described() ec2types.Instance {
	r.Helper()
	out, err := r.ec2.DescribeInstances(r.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{*r.worker.InstanceId}})
	r.check(err)

	return out.Reservations[0].Instances[0]
}

// plug gives the machine a link for each attached interface, as a hypervisor does.
func (r *realIPAM) plug(present map[string]bool) {
	r.Helper()
	for _, n := range r.described().NetworkInterfaces {
		device := fmt.Sprintf("eth%d", *n.Attachment.DeviceIndex)
		if n.Attachment.Status == ec2types.AttachmentStatusAttached && !present[device] {
			r.addLink(device, *n.MacAddress)
			present[device] = true
		}
	}
}

// start runs the daemon with its role, its rights and more settings.
func (r *realIPAM) start(settings ...string) (stop func()) {
	r.Helper()
	container := corev1.Container{Env: []corev1.EnvVar{
		{Name: "AWS_REGION", Value: "us-east-1"},
		{Name: "AWS_ROLE_ARN", Value: vpcCNIRole},
		{Name: "AWS_WEB_IDENTITY_TOKEN_FILE"},
		{Name: "AWS_ENDPOINT_URL"},
		{Name: "AWS_ENDPOINT_URL_STS"},
		{Name: "AWS_EC2_METADATA_SERVICE_ENDPOINT", Value: r.metadata},
		{Name: "AWS_VPC_K8S_CNI_LOG_FILE", Value: "stdout"},
		{Name: "CLUSTER_NAME", Value: "demo"},
		{Name: "ENABLE_IPv4", Value: "true"},
		{Name: "MY_NODE_NAME", Value: *r.worker.PrivateDnsName},
		{Name: "PATH", Value: os.Getenv("PATH")},
	}}
	environment := append(r.containerEnvironment(r.lab, container, vpcCNIAccount), "KUBECONFIG="+r.kubeconfigOf("kube-system", vpcCNIAccount))
	path, err := exec.LookPath("ip")
	r.check(err)
	// Its socket and its state are below /var/run, which is the host's otherwise.
	script := "mount -t tmpfs tmpfs /var/run && mkdir /var/run/aws-node && exec " + r.program

	return realProgram{
		name:        ipamDaemon,
		path:        path,
		arguments:   []string{"netns", "exec", r.machine, "sh", "-c", script},
		environment: append(environment, settings...),
		refusals:    []string{"forbidden", "UnauthorizedOperation", "AccessDenied"},
	}.start(r.T)
}

// await waits until f returns nothing. Meanwhile it plugs in what is attached.
func (r *realIPAM) await(what string, present map[string]bool, f func(ec2types.Instance) string) {
	r.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		r.plug(present)
		problem := f(r.described())
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s: not within 3 minutes: %s", what, problem)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// addressCounts returns how many addresses and prefixes each interface of an instance has.
func addressCounts(i ec2types.Instance) []string {
	var out []string
	for _, n := range i.NetworkInterfaces {
		out = append(out, fmt.Sprintf("%d+%d", len(n.PrivateIpAddresses), len(n.Ipv4Prefixes)))
	}

	return out
}

// perInterface returns how many addresses an interface of the worker can have.
func (r *realIPAM) perInterface() int32 {
	r.Helper()
	out, err := r.ec2.DescribeInstanceTypes(r.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{r.worker.InstanceType}})
	r.check(err)

	return *out.InstanceTypes[0].NetworkInfo.Ipv4AddressesPerInterface
}

func wantCounts(want ...string) func(ec2types.Instance) string {
	return func(i ec2types.Instance) string {
		if got := addressCounts(i); !slices.Equal(got, want) {
			return fmt.Sprintf("addresses and prefixes by interface are %v, want %v", got, want)
		}

		return ""
	}
}

// checkInterface checks what the daemon has attached.
func (r *realIPAM) checkInterface(n ec2types.InstanceNetworkInterface) {
	r.Helper()
	out, err := r.ec2.DescribeNetworkInterfaces(r.Context(), &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*n.NetworkInterfaceId}})
	r.check(err)
	tags := map[string]string{}
	for _, tag := range out.NetworkInterfaces[0].TagSet {
		tags[*tag.Key] = *tag.Value
	}
	if tags["cluster.k8s.amazonaws.com/name"] != "demo" || tags["node.k8s.amazonaws.com/instance_id"] != *r.worker.InstanceId {
		r.Errorf("the interface has the tags %v", tags)
	}
	if *n.SubnetId != *r.worker.SubnetId || *n.Groups[0].GroupId != groupOf(r.worker) || !*n.Attachment.DeleteOnTermination {
		r.Errorf("the interface is in %s with the groups %+v and the attachment %+v", *n.SubnetId, n.Groups, n.Attachment)
	}
}

// TestRealVPCCNI: the unmodified IPAM daemon of the Amazon VPC CNI assigns all addresses of a worker's interfaces for two warm ones, or a
// prefix, with the policy of its role and no other right. What it does is no drift, and ends with the machine. No attack: the
// real program, with its limits.
func TestRealVPCCNI(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := newRealIPAM(t)
	present := map[string]bool{"eth0": true}
	stop := r.start("WARM_ENI_TARGET=2")
	full := fmt.Sprintf("%d+0", r.perInterface())
	r.await("addresses for two interfaces", present, wantCounts(full, full))
	r.await("the second interface is the machine's", present, func(i ec2types.Instance) string {
		if n := i.NetworkInterfaces[1]; !*n.Attachment.DeleteOnTermination {
			return "it would outlive the machine"
		}

		return ""
	})
	r.checkInterface(r.described().NetworkInterfaces[1])
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}
	stop()

	// Addresses that no pod has are given back, and prefixes come in their place.
	stop = r.start("ENABLE_PREFIX_DELEGATION=true", "WARM_PREFIX_TARGET=1")
	r.await("a prefix", present, func(i ec2types.Instance) string {
		for _, n := range i.NetworkInterfaces { // the daemon chooses which one has it
			if len(n.Ipv4Prefixes) > 0 {
				return ""
			}
		}

		return fmt.Sprintf("addresses and prefixes by interface are %v", addressCounts(i))
	})
	stop()

	_, err := r.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*r.worker.InstanceId}})
	r.check(err)
	r.awaitNoInterfaces()
}

// awaitNoInterfaces waits until no interface of the daemon is left.
func (r *realIPAM) awaitNoInterfaces() {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := r.ec2.DescribeNetworkInterfaces(r.Context(), &ec2.DescribeNetworkInterfacesInput{Filters: []ec2types.Filter{
			{Name: sdk.String("tag:node.k8s.amazonaws.com/instance_id"), Values: []string{*r.worker.InstanceId}},
		}})
		r.check(err)
		if len(out.NetworkInterfaces) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%d interfaces outlive the machine", len(out.NetworkInterfaces))
		}
		time.Sleep(200 * time.Millisecond)
	}
}
