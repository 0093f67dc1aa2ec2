// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

const (
	controllerName = "aws-cloud-controller-manager"
	controllerRole = rolePrefix + "kube-system." + controllerName + ".us-east-1"
	controllerFile = "../../examples/addons/" + controllerName
	excludedLabel  = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// controllerLab is a lab with a cluster whose cloud controller manager has the role of the channel in examples/addons.
type controllerLab struct {
	podLab
	ec2 *ec2.Client // of the account's root
	elb *elb.Client // of the account's root
}

func newControllerLab(t *testing.T) controllerLab {
	t.Helper()
	p := newPodLab(t)
	text, err := os.ReadFile(controllerFile + "-policy.json")
	p.check(err)
	policy := p.temporaryFile("policy.json", strings.ReplaceAll(string(text), "CLUSTER", "demo"))
	p.must(caller{}, 0, "iam", "service-account", "create", controllerName, "-n", "kube-system", "--policy-file", policy, "--name", "demo", "--yes")
	p.must(caller{}, 0, "apply", "demo", "--yes")
	p.allowAtMost(map[string]any{
		"Sid": "LoadBalancers", "Effect": "Allow", "Resource": "*", "Action": []string{
			"ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", "ec2:DescribeAvailabilityZones",
			"ec2:DescribeRouteTables", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets", "elasticloadbalancing:*",
		},
	})

	return controllerLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{})), elb: elb.NewFromConfig(p.config(caller{}))}
}

// allowAtMost adds a statement to the permissions boundary, as an administrator does.
func (p podLab) allowAtMost(statement map[string]any) {
	p.Helper()
	api := iam.NewFromConfig(p.config(caller{}))
	have, err := api.GetPolicyVersion(p.Context(), &iam.GetPolicyVersionInput{PolicyArn: sdk.String(boundary), VersionId: sdk.String("v1")})
	p.check(err)
	var document struct {
		Version   string
		Statement []any
	}
	p.check(json.Unmarshal([]byte(p.unescape(*have.PolicyVersion.Document)), &document))
	document.Statement = append(document.Statement, statement)
	text, err := json.Marshal(document)
	p.check(err)
	_, err = api.CreatePolicyVersion(p.Context(), &iam.CreatePolicyVersionInput{
		PolicyArn: sdk.String(boundary), PolicyDocument: sdk.String(string(text)), SetAsDefault: true,
	})
	p.check(err)
}

// securityGroup returns the id of a security group of the cluster.
func (l controllerLab) securityGroup(name string) string {
	l.Helper()
	out, err := l.ec2.DescribeSecurityGroups(l.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{{Name: sdk.String("group-name"), Values: []string{name + ".demo"}}},
	})
	l.check(err)
	if len(out.SecurityGroups) != 1 {
		l.Fatalf("%d security groups %s", len(out.SecurityGroups), name)
	}

	return *out.SecurityGroups[0].GroupId
}

// balancers returns the names and ARNs of the load balancers.
func (l controllerLab) balancers() map[string]elbtypes.LoadBalancer {
	l.Helper()
	out, err := l.elb.DescribeLoadBalancers(l.Context(), &elb.DescribeLoadBalancersInput{})
	l.check(err)
	all := map[string]elbtypes.LoadBalancer{}
	for _, b := range out.LoadBalancers {
		all[*b.LoadBalancerName] = b
	}

	return all
}

// groups returns the target groups by name.
func (l controllerLab) groups() map[string]elbtypes.TargetGroup {
	l.Helper()
	out, err := l.elb.DescribeTargetGroups(l.Context(), &elb.DescribeTargetGroupsInput{})
	l.check(err)
	all := map[string]elbtypes.TargetGroup{}
	for _, g := range out.TargetGroups {
		all[*g.TargetGroupName] = g
	}

	return all
}

// serviceRules returns the rules of a security group that the controller has added.
func (l controllerLab) serviceRules(group string) []string {
	l.Helper()
	out, err := l.ec2.DescribeSecurityGroupRules(l.Context(), &ec2.DescribeSecurityGroupRulesInput{
		Filters: []ec2types.Filter{{Name: sdk.String("group-id"), Values: []string{group}}},
	})
	l.check(err)
	var all []string
	for _, r := range out.SecurityGroupRules {
		if description, ok := strings.CutPrefix(sdk.ToString(r.Description), "kubernetes.io/rule/nlb/"); ok {
			kind, _, _ := strings.Cut(description, "=")
			all = append(all, fmt.Sprintf("%s %s %d from %s", kind, *r.IpProtocol, *r.FromPort, *r.CidrIpv4))
		}
	}
	slices.Sort(all)

	return all
}

// TestControllerOfLoadBalancersIsLimited: with the role of the channel, only what the controller itself has made can be
// changed. The load balancers of the API and of other clusters have the same owner's tag or another one.
func TestControllerOfLoadBalancersIsLimited(t *testing.T) {
	l := newControllerLab(t)
	token := l.sign(l.private(), map[string]any{"sub": "system:serviceaccount:kube-system:" + controllerName})
	c, err := l.assumeWith(controllerRole, token)
	l.check(err)
	mine := elb.NewFromConfig(l.config(c))
	groups := ec2.NewFromConfig(l.config(c))
	var api elbtypes.LoadBalancer
	for _, b := range l.balancers() {
		api = b
	}
	var target elbtypes.TargetGroup
	for _, g := range l.groups() {
		target = g
	}
	ctx := t.Context()
	subnets := []string{*api.AvailabilityZones[0].SubnetId}
	tag := func(pairs ...string) (out []elbtypes.Tag) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, elbtypes.Tag{Key: &pairs[i], Value: &pairs[i+1]})
		}

		return out
	}
	create := func(name string, tags []elbtypes.Tag) error {
		_, err := mine.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: subnets, Tags: tags,
		})

		return err
	}
	open := func(group string) error {
		_, err := groups.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: []ec2types.IpPermission{{
			IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(30000), ToPort: sdk.Int32(30000), IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("192.0.2.0/24")}},
		}}})

		return err
	}
	l.check(create("own", tag("kubernetes.io/cluster/demo", "owned", "kubernetes.io/service-name", "shop/web")))
	l.check(open(l.securityGroup("worker")))

	_, err = mine.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: api.LoadBalancerArn})
	l.denied("delete the load balancer of the API", err)
	_, err = mine.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: api.LoadBalancerArn, Attributes: []elbtypes.LoadBalancerAttribute{
		{Key: sdk.String("deletion_protection.enabled"), Value: sdk.String("true")},
	}})
	l.denied("change the load balancer of the API", err)
	_, err = mine.CreateListener(ctx, &elb.CreateListenerInput{LoadBalancerArn: api.LoadBalancerArn, Port: sdk.Int32(80), Protocol: elbtypes.ProtocolEnumTcp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: target.TargetGroupArn}}})
	l.denied("add a listener to the load balancer of the API", err)
	_, err = mine.DeregisterTargets(ctx, &elb.DeregisterTargetsInput{TargetGroupArn: target.TargetGroupArn, Targets: []elbtypes.TargetDescription{{Id: sdk.String("i-1")}}})
	l.denied("take a machine out of the API", err)
	_, err = mine.AddTags(ctx, &elb.AddTagsInput{ResourceArns: []string{*api.LoadBalancerArn}, Tags: tag("kubernetes.io/cluster/demo", "owned", "kubernetes.io/service-name", "shop/web")})
	l.denied("tag the load balancer of the API as its own", err)
	l.denied("create a load balancer of another cluster", create("other", tag("kubernetes.io/cluster/demo-2", "owned", "kubernetes.io/service-name", "shop/web")))
	l.denied("create a load balancer without tags", create("other", nil))
	l.denied("create a load balancer that Slipway takes for its own", create("other", tag(
		"kubernetes.io/cluster/demo", "owned", "kubernetes.io/service-name", "shop/web", "slipway.dev/cluster", "demo",
	)))
	l.denied("open ports of the control plane", open(l.securityGroup("control-plane")))
	l.denied("open ports of the load balancer of the API", open(l.securityGroup("api-internal")))
	_, err = groups.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{l.machines()[0].id}})
	l.denied("terminate a machine", err)
}

// clusterMachine is an instance of the cluster.
type clusterMachine struct{ id, zone, name, role string }

// machines returns the instances of the cluster.
func (l controllerLab) machines() []clusterMachine {
	l.Helper()
	out, err := l.ec2.DescribeInstances(l.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{"demo"}}, {Name: sdk.String("instance-state-name"), Values: []string{"running"}},
	}})
	l.check(err)
	var all []clusterMachine
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			m := clusterMachine{id: *i.InstanceId, zone: *i.Placement.AvailabilityZone, name: *i.PrivateDnsName}
			for _, tag := range i.Tags {
				if *tag.Key == "slipway.dev/role" {
					m.role = *tag.Value
				}
			}
			all = append(all, m)
		}
	}

	return all
}

// realController is a kube-apiserver with the nodes of a cluster, and the real controller next to it.
type realController struct {
	controllerLab
	api    kubernetes.Interface
	server apitest.Server
	stop   func()
}

// startController applies the channel and starts the controller with the arguments, the settings, the rights in
// Kubernetes and the role in AWS that it has in a cluster.
func startController(t *testing.T) realController {
	t.Helper()
	program := assettest.Program(t, controllerName, "bin/"+controllerName)
	l := newControllerLab(t)
	text, err := l.key.PEM()
	l.check(err)
	public, err := l.key.PublicPEM()
	l.check(err)
	r := realController{controllerLab: l, server: apitest.StartWith(t, apitest.Options{Issuer: podIssuer, SigningKey: text, VerificationKey: public})}
	cfg, err := clientcmd.BuildConfigFromFlags("", r.server.Kubeconfig)
	l.check(err)
	r.api, err = kubernetes.NewForConfig(cfg)
	l.check(err)
	r.registerNodes()
	// No controller sets the status of the DaemonSet here, so the command does not see it become healthy.
	_, errs, _ := l.slipway(caller{}, "addons", "apply", "demo", "-f", "../../examples/addons/load-balancers.yaml", "--kubeconfig", r.server.Kubeconfig, "--timeout", "1s", "--yes")
	set, err := r.api.AppsV1().DaemonSets("kube-system").Get(t.Context(), controllerName, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if out, errs, code := l.slipway(caller{}, "addons", "diff", "demo", "-f", "../../examples/addons/load-balancers.yaml", "--kubeconfig", r.server.Kubeconfig); out != "" {
		t.Errorf("diff has exit code %d and differences after an apply:\n%s%s", code, out, errs)
	}
	config, err := r.api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), controllerName, metav1.GetOptions{})
	l.check(err)
	container := set.Spec.Template.Spec.Containers[0]
	arguments := slices.Clone(container.Args)
	for i, a := range arguments {
		if strings.HasPrefix(a, "--cloud-config=") {
			arguments[i] = "--cloud-config=" + l.temporaryFile("cloud.conf", config.Data["cloud.conf"])
		}
	}
	arguments = append(arguments, "--kubeconfig="+r.kubeconfig(), "--secure-port=0", "--leader-elect-retry-period=500ms")
	environment := []string{"HOME=" + l.dir}
	for _, v := range container.Env {
		switch v.Name {
		case "AWS_WEB_IDENTITY_TOKEN_FILE":
			v.Value = l.temporaryFile("token", r.token("sts.amazonaws.com"))
		case "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS":
			v.Value = l.region.URL
		}
		environment = append(environment, v.Name+"="+v.Value)
	}
	r.run(program, arguments, environment)

	return r
}

// run runs the controller until the test ends or stop is called.
func (r *realController) run(program string, arguments, environment []string) {
	r.Helper()
	var out bytes.Buffer
	cmd := exec.Command(program, arguments...)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.check(cmd.Start())
	r.stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	r.Cleanup(func() {
		r.stop()
		if r.Failed() {
			text := out.String()
			r.Logf("the controller:\n%s", text[max(0, len(text)-6000):])
		}
	})
}

// token returns a token of the controller's service account.
func (r *realController) token(audiences ...string) string {
	r.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	out, err := r.api.CoreV1().ServiceAccounts("kube-system").CreateToken(r.Context(), controllerName, request, metav1.CreateOptions{})
	r.check(err)

	return out.Status.Token
}

// kubeconfig returns a file with which the controller has the rights of its service account.
func (r *realController) kubeconfig() string {
	r.Helper()
	config, err := clientcmd.LoadFromFile(r.server.Kubeconfig)
	r.check(err)
	config.AuthInfos["test"].Token = r.token()
	path := filepath.Join(r.dir, "controller.kubeconfig")
	r.check(clientcmd.WriteToFile(*config, path))

	return path
}

// registerNodes creates the nodes of the machines, as kubelets do.
func (r *realController) registerNodes() {
	r.Helper()
	for _, m := range r.machines() {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: corev1.NodeSpec{ProviderID: "aws:///" + m.zone + "/" + m.id}}
		if m.role == "control-plane" {
			n.Labels = map[string]string{excludedLabel: ""}
		}
		made, err := r.api.CoreV1().Nodes().Create(r.Context(), n, metav1.CreateOptions{})
		r.check(err)
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		_, err = r.api.CoreV1().Nodes().UpdateStatus(r.Context(), made, metav1.UpdateOptions{})
		r.check(err)
	}
}

// createService creates a Service of type LoadBalancer and returns it when it has an address.
func (r *realController) createService(name string, change func(*corev1.Service)) *corev1.Service {
	r.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	change(s)
	_, err := r.api.CoreV1().Services("default").Create(r.Context(), s, metav1.CreateOptions{})
	r.check(err)
	var got *corev1.Service
	r.await("Service "+name+" gets an address", func() string {
		got, err = r.api.CoreV1().Services("default").Get(r.Context(), name, metav1.GetOptions{})
		r.check(err)
		if len(got.Status.LoadBalancer.Ingress) == 0 {
			return "it has none" + r.lastEvent(name)
		}

		return ""
	})

	return got
}

// lastEvent returns the last warning about a Service.
func (r *realController) lastEvent(name string) string {
	list, err := r.api.CoreV1().Events("default").List(r.Context(), metav1.ListOptions{})
	r.check(err)
	text := ""
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.Type == corev1.EventTypeWarning {
			text = ": " + e.Message
		}
	}

	return text
}

// await waits until f returns nothing.
func (r *realController) await(what string, f func() string) {
	r.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for problem := f(); problem != ""; problem = f() {
		if time.Now().After(deadline) {
			r.Fatalf("%s: not within 90 s: %s", what, problem)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestRealCloudController: the unmodified controller, with the channel of examples/addons, makes the load balancer of a
// Service, opens the ports of workers, and removes both with the Service. What it does is no drift, and what it leaves is
// deleted with the cluster.
func TestRealCloudController(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	r := startController(t)
	balancers, groups := len(r.balancers()), len(r.groups())
	worker := r.securityGroup("worker")
	s := r.createService("web", func(s *corev1.Service) {})
	host := s.Status.LoadBalancer.Ingress[0].Hostname
	name := "a" + strings.ReplaceAll(string(s.UID), "-", "")[:31]
	made, ok := r.balancers()[name]
	if !ok || *made.DNSName != host || !strings.HasPrefix(host, "127.") || strings.Count(host, ".") != 1 {
		t.Errorf("the Service has the address %s, the load balancer is %+v", host, made)
	}

	r.await("the workers are targets", func() string { return r.checkTargets(s) })
	port := s.Spec.Ports[0].NodePort
	r.await("the ports of workers are open", func() string {
		return cmp.Diff([]string{fmt.Sprintf("client tcp %d from 0.0.0.0/0", port)}, r.serviceRules(worker))
	})
	for _, other := range []string{"control-plane", "api-internal", "api-public"} {
		if rules := r.serviceRules(r.securityGroup(other)); len(rules) > 0 {
			t.Errorf("the controller has opened %s: %q", other, rules)
		}
	}
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}

	r.check(r.api.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	r.await("the load balancer is removed with the Service", func() string {
		if b, g, rules := len(r.balancers()), len(r.groups()), r.serviceRules(worker); b != balancers || g != groups || len(rules) > 0 {
			return fmt.Sprintf("%d load balancers and %d target groups, %d and %d before; rules %q", b, g, balancers, groups, rules)
		}

		return ""
	})

	r.createService("left", func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	})
	r.await("its rules are there", func() string {
		if rules := r.serviceRules(worker); !slices.ContainsFunc(rules, func(s string) bool { return strings.HasPrefix(s, "mtu icmp 3 from 192.0.2.0/24") }) {
			return fmt.Sprintf("%q", rules)
		}

		return ""
	})
	if out, errs, code := r.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}
	r.stop()
	out := r.must(caller{}, 0, "delete", "cluster", "demo", "--yes")
	for _, want := range []string{"leftover of service default/left", "load-balancer/leftover:a", "target-group/leftover:k8s-default-left-"} {
		if !strings.Contains(out, want) {
			t.Errorf("delete does not print %s:\n%s", want, out)
		}
	}
	if b, g := r.balancers(), r.groups(); len(b)+len(g) > 0 {
		t.Errorf("left: %v %v", b, g)
	}
}

// checkTargets returns what is wrong with the targets of a Service's port: they must be the workers, and no other machine.
func (r *realController) checkTargets(s *corev1.Service) string {
	r.Helper()
	var want, got []string
	for _, m := range r.machines() {
		if m.role == "worker" {
			want = append(want, fmt.Sprintf("%s:%d", m.id, s.Spec.Ports[0].NodePort))
		}
	}
	for name, g := range r.groups() {
		if !strings.HasPrefix(name, "k8s-default-"+s.Name+"-") {
			continue
		}
		out, err := r.elb.DescribeTargetHealth(r.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: g.TargetGroupArn})
		r.check(err)
		for _, d := range out.TargetHealthDescriptions {
			got = append(got, fmt.Sprintf("%s:%d", *d.Target.Id, *d.Target.Port))
		}
	}
	slices.Sort(want)
	slices.Sort(got)

	return cmp.Diff(want, got)
}

// TestListenerTagsNeedTheRight: who may create a listener, and may tag nothing, cannot create one with tags.
func TestListenerTagsNeedTheRight(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := elb.NewFromConfig(l.config(caller{}))
	found, err := root.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{})
	l.check(err)
	group := found.TargetGroups[0]
	var policy iampolicy.Policy
	l.check(json.Unmarshal([]byte(`{"Version": "2012-10-17", "Statement": [
		{"Sid": "Listeners", "Effect": "Allow", "Action": ["elasticloadbalancing:CreateListener"], "Resource": ["*"]}]}`), &policy))
	mine := elb.NewFromConfig(l.config(l.user("listeners", []iampolicy.Policy{policy})))
	create := func(port int32, tags ...elbtypes.Tag) error {
		_, err := mine.CreateListener(t.Context(), &elb.CreateListenerInput{
			LoadBalancerArn: &group.LoadBalancerArns[0], Port: &port, Protocol: elbtypes.ProtocolEnumTcp, Tags: tags,
			DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: group.TargetGroupArn}},
		})

		return err
	}
	l.denied("create a listener with tags", create(81, elbtypes.Tag{Key: sdk.String("team"), Value: sdk.String("a")}))
	l.check(create(82))
}
