// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	ingressController     = "aws-load-balancer-controller"
	ingressControllerFile = "../../examples/addons/" + ingressController
)

// ingressControllerPolicy returns the policy of examples/addons for cluster demo in a VPC.
func ingressControllerPolicy(t *testing.T, vpc string) string {
	t.Helper()

	return ingressControllerDocument(t, "policy", vpc)
}

// ingressControllerDocument returns the policy, or what it adds to the permissions boundary.
func ingressControllerDocument(t *testing.T, kind, vpc string) string {
	t.Helper()
	text, err := os.ReadFile(ingressControllerFile + "-" + kind + ".json")
	check(t, err)

	return strings.NewReplacer("CLUSTER", "demo", "VPC", vpc).Replace(string(text))
}

// ingressControllerLab is a lab with a cluster whose AWS Load Balancer Controller has the role of the channel in examples/addons.
type ingressControllerLab struct {
	controllerLab
	groups *ec2.Client // of the controller
	mine   *elb.Client // of the controller
	vpc    string
}

func newIngressControllerLab(t *testing.T) ingressControllerLab {
	t.Helper()
	p := newPodLab(t)
	l := ingressControllerLab{controllerLab: controllerLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{})), elb: elb.NewFromConfig(p.config(caller{}))}}
	group, err := l.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{l.securityGroup("worker")}})
	l.check(err)
	l.vpc = *group.SecurityGroups[0].VpcId
	p.startAccount(ingressController, ingressController, ingressControllerPolicy(t, l.vpc), statementsOf(t, ingressControllerDocument(t, "boundary", l.vpc)))
	c := p.assumeAs(p.roleOf("aws-load-balancer"), ingressController, ingressController)
	l.groups, l.mine = ec2.NewFromConfig(p.config(c)), elb.NewFromConfig(p.config(c))

	return l
}

// roleOf returns the ARN of the only role of a service account whose name, which may be shortened, has this text.
func (p podLab) roleOf(name string) string {
	p.Helper()
	roles, err := iam.NewFromConfig(p.config(caller{})).ListRoles(p.Context(), &iam.ListRolesInput{PathPrefix: sdk.String(rolePath)})
	p.check(err)
	var found []string
	for _, r := range roles.Roles {
		if strings.Contains(*r.RoleName, name) {
			found = append(found, *r.Arn)
		}
	}
	if len(found) != 1 {
		p.Fatalf("the roles with %s in their names are %v", name, found)
	}

	return found[0]
}

// open opens a port in a security group with the controller's role.
func (l *ingressControllerLab) open(group string) error {
	_, err := l.groups.AuthorizeSecurityGroupIngress(l.Context(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: []ec2types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(30000), ToPort: sdk.Int32(30000), IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("192.0.2.0/24")}},
	}}})

	return err
}

// createGroup creates a security group with tags.
func (l *ingressControllerLab) createGroup(name, vpc string, tags ...string) (string, error) {
	out, err := l.groups.CreateSecurityGroup(l.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: &name, Description: &name, VpcId: &vpc, TagSpecifications: ec2TagsOfOther("security-group", tags...),
	})
	if err != nil {
		return "", err
	}

	return *out.GroupId, nil
}

// createTargets creates a target group with tags.
func (l *ingressControllerLab) createTargets(name string, pairs ...string) (string, error) {
	var tags []elbtypes.Tag
	for i := 0; i < len(pairs); i += 2 {
		tags = append(tags, elbtypes.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	out, err := l.mine.CreateTargetGroup(l.Context(), &elb.CreateTargetGroupInput{
		Name: &name, Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(80), VpcId: &l.vpc, TargetType: elbtypes.TargetTypeEnumInstance, Tags: tags,
	})
	if err != nil {
		return "", err
	}

	return *out.TargetGroups[0].TargetGroupArn, nil
}

// TestIngressControllerIsLimited: with the role of the channel, security groups, target groups and application load balancers of its own
// can be made and deleted, and ports of workers opened. The load balancers of the API and their targets cannot be changed, nor what
// belongs to others, and nothing can be made that Slipway takes for its own. Never open: the role's policy and this test were made
// together.
func TestIngressControllerIsLimited(t *testing.T) {
	l := newIngressControllerLab(t)
	ctx := t.Context()
	own := []string{"elbv2.k8s.aws/cluster", "demo", "elbv2.k8s.aws/resource", "backend-sg"}
	group, err := l.createGroup("k8s-traffic-demo", l.vpc, own...)
	l.check(err)
	l.check(l.open(group))
	l.check(l.open(l.securityGroup("worker")))
	_, err = l.groups.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &group})
	l.check(err)
	targets, err := l.createTargets("k8s-shop-web", "elbv2.k8s.aws/cluster", "demo")
	l.check(err)
	_, err = l.mine.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: &targets})
	l.check(err)

	_, err = l.createGroup("k8s-none", l.vpc)
	l.denied("create a security group without the cluster's name", err)
	_, err = l.createGroup("k8s-marked", l.vpc, append(own, "slipway.dev/cluster", "demo")...)
	l.denied("create a security group that Slipway takes for its own", err)
	other, err := l.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.99.0.0/16")})
	l.check(err)
	_, err = l.createGroup("k8s-elsewhere", *other.Vpc.VpcId, own...)
	l.denied("create a security group in another network", err)
	l.denied("open a port of the control plane", l.open(l.securityGroup("control-plane")))
	_, err = l.groups.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{l.securityGroup("control-plane")}, Tags: ec2TagsOfOther("security-group", own...)[0].Tags})
	l.denied("tag the security group of the control plane", err)
	worker := l.securityGroup("worker")
	_, err = l.groups.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &worker})
	l.denied("delete the security group of workers", err)
	_, err = l.createTargets("k8s-marked", "elbv2.k8s.aws/cluster", "demo", "slipway.dev/cluster", "demo")
	l.denied("create a target group that Slipway takes for its own", err)
	_, err = l.createTargets("k8s-other", "elbv2.k8s.aws/cluster", "other")
	l.denied("create a target group of another cluster", err)
	l.deniedAPI()
}

// deniedAPI checks that the controller's role changes neither load balancers nor target groups of the API.
func (l *ingressControllerLab) deniedAPI() {
	l.Helper()
	ctx := l.Context()
	for name, b := range l.balancers() {
		_, err := l.mine.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: b.LoadBalancerArn})
		l.denied("delete load balancer "+name, err)
		_, err = l.mine.AddTags(ctx, &elb.AddTagsInput{
			ResourceArns: []string{*b.LoadBalancerArn}, Tags: []elbtypes.Tag{{Key: sdk.String("elbv2.k8s.aws/cluster"), Value: sdk.String("demo")}},
		})
		l.denied("tag load balancer "+name, err)
	}
	for name, g := range l.controllerLab.groups() {
		_, err := l.mine.RegisterTargets(ctx, &elb.RegisterTargetsInput{TargetGroupArn: g.TargetGroupArn, Targets: []elbtypes.TargetDescription{{Id: sdk.String("i-0123456789abcdef0")}}})
		l.denied("register another machine in target group "+name, err)
		_, err = l.mine.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: g.TargetGroupArn})
		l.denied("delete target group "+name, err)
	}
}

// TestTokenOfIngressControllerIsLimited: the token of the controller marks Ingresses with finalizers and writes names of load balancers
// into those of class alb. It changes no rule and no annotation of an Ingress, and no address of those of another controller. Never
// open: the account's admission policy and this test were made together.
func TestTokenOfIngressControllerIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newRoleAddonLab(t, ingressController, ingressController, ingressControllerPolicy(t, "*"))
	backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	for _, class := range []string{"alb", "traefik"} { // before the webhook, which nothing serves here
		_, err := l.api.NetworkingV1().Ingresses("default").Create(t.Context(), &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: backend},
		}, metav1.CreateOptions{})
		l.check(err)
	}
	l.applyChannel("certificates.yaml")
	// Nothing serves cert-manager's webhook here.
	l.check(l.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "cert-manager-webhook", metav1.DeleteOptions{}))
	l.check(l.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(), "cert-manager-webhook", metav1.DeleteOptions{}))
	l.applyChannel("application-load-balancers.yaml")
	api := l.apiOf(ingressController, ingressController).NetworkingV1().Ingresses("default")
	patch := func(class, text string, subresources ...string) error {
		_, err := api.Patch(t.Context(), class, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)

		return err
	}
	rules := `{"spec":{"defaultBackend":{"service":{"name":"attacker","port":{"number":80}}}}}`
	l.await("the policy is in force", func() error {
		if err := patch("traefik", rules); !refused(err) {
			return cmp.Or(err, errors.New("a change of rules is not refused"))
		}

		return nil
	})
	address := func(text string) string { return `{"status":{"loadBalancer":{"ingress":[` + text + `]}}}` }
	name := `{"hostname":"k8s-default-alb-1.us-east-1.elb.amazonaws.com"}`
	for _, c := range []struct {
		what string
		err  error
		want bool
	}{
		{"mark an Ingress", patch("traefik", `{"metadata":{"finalizers":["ingress.k8s.aws/resources"]}}`), true},
		{"write the name of a load balancer", patch("alb", address(name), "status"), true},
		{"change the rules of an Ingress of its class", patch("alb", rules), false},
		{"change an annotation", patch("traefik", `{"metadata":{"annotations":{"cert-manager.io/cluster-issuer":"x"}}}`), false},
		{"write an address", patch("alb", address(`{"ip":"192.0.2.1"}`), "status"), false},
		{"write the name of another host", patch("alb", address(`{"hostname":"attacker.example.com"}`), "status"), false},
		{"write addresses of another controller's Ingress", patch("traefik", address(name), "status"), false},
	} {
		if c.want && c.err != nil || !c.want && !refused(c.err) {
			t.Errorf("the controller can %s: %v, want %t", c.what, c.err, c.want)
		}
	}
	_, err := l.apiOf(ingressController, ingressController).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the controller can read Secrets: %v", err)
	}
}
