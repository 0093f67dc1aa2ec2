// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
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
	p.startAccount("kube-system", controllerName, strings.ReplaceAll(string(text), "CLUSTER", "demo"), controllerBoundary(p.lab))

	return controllerLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{})), elb: elb.NewFromConfig(p.config(caller{}))}
}

// controllerBoundary returns the statements of the controller for the permissions boundary, of cluster demo.
func controllerBoundary(l *lab) []any {
	l.Helper()
	text, err := os.ReadFile(controllerFile + "-boundary.json")
	l.check(err)
	var document struct{ Statement []any }
	l.check(json.Unmarshal([]byte(strings.ReplaceAll(string(text), "CLUSTER", "demo")), &document))

	return document.Statement
}

// allowAtMost adds statements to the permissions boundary, as an administrator does.
func (p podLab) allowAtMost(statements []any) {
	p.Helper()
	api := iam.NewFromConfig(p.config(caller{}))
	have, err := api.GetPolicyVersion(p.Context(), &iam.GetPolicyVersionInput{PolicyArn: sdk.String(boundary), VersionId: sdk.String("v1")})
	p.check(err)
	var document struct {
		Version   string
		Statement []any
	}
	p.check(json.Unmarshal([]byte(p.unescape(*have.PolicyVersion.Document)), &document))
	document.Statement = append(document.Statement, statements...)
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
// changed. The load balancers of the API and of other clusters have the same owner's tag or another one. Never open: the role's policy
// and this test were made together.
func TestControllerOfLoadBalancersIsLimited(t *testing.T) {
	l := newControllerLab(t)
	c := l.assumeAs(controllerRole, "kube-system", controllerName)
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

	_, err := mine.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: api.LoadBalancerArn})
	l.denied("delete the load balancer of the API", err)
	_, err = mine.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: api.LoadBalancerArn, Attributes: []elbtypes.LoadBalancerAttribute{
		{Key: sdk.String("deletion_protection.enabled"), Value: sdk.String("true")},
	}})
	l.denied("change the load balancer of the API", err)
	_, err = mine.CreateListener(ctx, &elb.CreateListenerInput{
		LoadBalancerArn: api.LoadBalancerArn, Port: sdk.Int32(80), Protocol: elbtypes.ProtocolEnumTcp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: target.TargetGroupArn}},
	})
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
type clusterMachine struct{ id, zone, name, role, address, kind string }

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
			m := clusterMachine{
				id: *i.InstanceId, zone: *i.Placement.AvailabilityZone, name: *i.PrivateDnsName,
				address: *i.PrivateIpAddress, kind: string(i.InstanceType),
			}
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

// TestListenerTagsNeedTheRight: who may create a listener, and may tag nothing, cannot create one with tags. No attack: the local
// region decides as AWS.
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
