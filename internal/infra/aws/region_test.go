// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	sdkscaling "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	sdkec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	sdkelb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	sdkiam "github.com/aws/aws-sdk-go-v2/service/iam"
	sdkkms "github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// startRegion starts the local region in records mode: it has the rules of AWS's control plane, and no
// instances.
func startRegion(t *testing.T) sdk.Config {
	t.Helper()
	return regiontest.Start(t).AWSConfig()
}

func desiredGraph(t *testing.T, cluster string, edit func(*model.Input)) *graph.Graph {
	t.Helper()
	in := modelInput(t, cluster, regiontest.ImageID)
	if edit != nil {
		edit(&in)
	}
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestRegion(t *testing.T) {
	cfg := startRegion(t)
	g := desiredGraph(t, "demo", nil)
	l := newTestCluster(cfg, "demo")
	p := l.makePlan(t, g)
	if _, mutating := l.calls.TotalCalls(); mutating != 0 {
		t.Errorf("plan made %d mutating calls", mutating)
	}
	l.applyPlan(t, p)
	if rest := l.makePlan(t, g); !rest.IsEmpty() {
		t.Fatalf("the second plan is not empty:\n%s", strings.Join(planLines(rest), "\n"))
	}
	neighbour := desiredGraph(t, "demo-2", func(in *model.Input) { in.Cluster.Spec.Networking.NATGateways = "Single" }) // of 5 addresses
	other := newTestCluster(cfg, "demo-2")
	other.applyPlan(t, other.makePlan(t, neighbour))

	t.Run("drift", func(t *testing.T) { checkRegionDrift(t, cfg, l, g) })

	// Edit the manifest, then revert the edit.
	edited := desiredGraph(t, "demo", func(in *model.Input) {
		in.BootScript = "#!/bin/sh\n# another agent\n# @@CONFIG@@\n"
		in.Cluster.Spec.Tags = map[string]string{"team": "a"}
	})
	l.applyPlan(t, l.makePlan(t, edited))
	if rest := l.makePlan(t, edited); !rest.IsEmpty() {
		t.Errorf("after the edit:\n%s", strings.Join(planLines(rest), "\n"))
	}

	l.applyPlan(t, l.makePlan(t, &graph.Graph{}))
	if rest := other.makePlan(t, neighbour); !rest.IsEmpty() {
		t.Errorf("deleting demo changed demo-2:\n%s", strings.Join(planLines(rest), "\n"))
	}
	other.applyPlan(t, other.makePlan(t, &graph.Graph{}))
	for _, name := range []string{"demo", "demo-2"} {
		if left := listTaggedResources(t, cfg, name); len(left) > 0 {
			t.Errorf("remaining resources with the tag of %s: %v", name, left)
		}
		if rest := newTestCluster(cfg, name).makePlan(t, &graph.Graph{}); !rest.IsEmpty() {
			t.Errorf("remaining resources of %s: %v", name, planLines(rest))
		}
	}
}

// checkRegionDrift changes resources outside of slipway. The plan must show each change with exactly the
// lines of want, and apply must revert it.
func checkRegionDrift(t *testing.T, cfg sdk.Config, l testCluster, g *graph.Graph) {
	t.Helper()
	e, lb, i, k := sdkec2.NewFromConfig(cfg), sdkelb.NewFromConfig(cfg), sdkiam.NewFromConfig(cfg), sdkkms.NewFromConfig(cfg)
	scaling := sdkscaling.NewFromConfig(cfg)
	id := func(addr string) *string {
		have, err := l.cloud.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := plan.Compute(g, have, plan.Options{})
		if got := p.ResourceID(graph.Addr(addr)); got != "" {
			return &got
		}
		t.Fatalf("%s does not exist", addr)
		return nil
	}
	s := sdk.String
	for _, tc := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"a tag of ours is changed", func() error {
			_, err := e.CreateTags(t.Context(), &sdkec2.CreateTagsInput{Resources: []string{*id("subnet/private-a")}, Tags: []ec2types.Tag{{Key: s("Name"), Value: s("mine")}}})
			return err
		}, []string{`~ subnet/private-a`, `Tags[Name]: "mine" → "private-a.demo"`}},
		{"DNS is off", func() error {
			_, err := e.ModifyVpcAttribute(t.Context(), &sdkec2.ModifyVpcAttributeInput{VpcId: id("vpc/main"), EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: sdk.Bool(false)}})
			return err
		}, []string{`~ vpc/main`, `EnableDnsHostnames: false → true`}},
		{"a route is gone", func() error {
			_, err := e.DeleteRoute(t.Context(), &sdkec2.DeleteRouteInput{RouteTableId: id("route-table/private-b"), DestinationCidrBlock: s("0.0.0.0/0")})
			return err
		}, []string{`+ route/private-b`}},
		{"a rule is gone", func() error {
			_, err := e.RevokeSecurityGroupIngress(t.Context(), &sdkec2.RevokeSecurityGroupIngressInput{
				GroupId: id("security-group/worker"), SecurityGroupRuleIds: []string{*id("security-group-ingress/kubelet-worker")},
			})
			return err
		}, []string{`+ security-group-ingress/kubelet-worker`}},
		{"SSH is opened", func() error {
			_, err := e.AuthorizeSecurityGroupIngress(t.Context(), &sdkec2.AuthorizeSecurityGroupIngressInput{
				GroupId: id("security-group/worker"), IpPermissions: []ec2types.IpPermission{{
					IpProtocol: s("tcp"), FromPort: sdk.Int32(22), ToPort: sdk.Int32(22), IpRanges: []ec2types.IpRange{{CidrIp: s("0.0.0.0/0")}},
				}},
			})
			return err
		}, []string{`- security-group-ingress/worker:tcp:22:22:0.0.0.0/0`}},
		{"a role may do more", func() error {
			_, err := i.PutRolePolicy(t.Context(), &sdkiam.PutRolePolicyInput{
				RoleName: id("iam-role/worker"), PolicyName: s("extra"), PolicyDocument: s(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`),
			})
			return err
		}, []string{`- iam-role-policy/worker:extra`}},
		{"a policy is another", func() error {
			_, err := i.PutRolePolicy(t.Context(), &sdkiam.PutRolePolicyInput{
				RoleName: id("iam-role/worker"), PolicyName: s("machine"), PolicyDocument: s(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`),
			})
			return err
		}, []string{`~ iam-role-policy/worker`, `PolicyDocument:`}},
		{"key rotation is off", func() error {
			_, err := k.DisableKeyRotation(t.Context(), &sdkkms.DisableKeyRotationInput{KeyId: id("kms-key/main")})
			return err
		}, []string{`~ kms-key/main`, `EnableKeyRotation: false → true`}},
		{"a load balancer's attribute", func() error {
			_, err := lb.ModifyLoadBalancerAttributes(t.Context(), &sdkelb.ModifyLoadBalancerAttributesInput{
				LoadBalancerArn: id("load-balancer/api"), Attributes: []elbtypes.LoadBalancerAttribute{{Key: s("load_balancing.cross_zone.enabled"), Value: s("false")}},
			})
			return err
		}, []string{`~ load-balancer/api`, `LoadBalancerAttributes[load_balancing.cross_zone.enabled]: "false" → "true"`}},
		{"a health check", func() error {
			_, err := lb.ModifyTargetGroup(t.Context(), &sdkelb.ModifyTargetGroupInput{TargetGroupArn: id("target-group/api"), HealthCheckPath: s("/livez")})
			return err
		}, []string{`~ target-group/api`, `HealthCheckPath: "/livez" → "/readyz"`}},
		{"a listener is gone", func() error {
			_, err := lb.DeleteListener(t.Context(), &sdkelb.DeleteListenerInput{ListenerArn: id("listener/join")})
			return err
		}, []string{`+ listener/join`}},
		{"a group's maximum", func() error {
			_, err := scaling.UpdateAutoScalingGroup(t.Context(), &sdkscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: s("nodes.demo"), MaxSize: sdk.Int32(9)})
			return err
		}, []string{`~ autoscaling-group/nodes`, `MaxSize: 9 → 2`}},
		{"a slot is another", func() error {
			_, err := e.CreateTags(t.Context(), &sdkec2.CreateTagsInput{Resources: []string{*id("volume/etcd-a")}, Tags: []ec2types.Tag{{Key: s("slipway.dev/etcd-slot"), Value: s("z")}}})
			return err
		}, []string{`~ volume/etcd-a`, `Tags[slipway.dev/etcd-slot]: "z" → "a"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.do(); err != nil {
				t.Fatal(err)
			}
			p := l.makePlan(t, g)
			got := planLines(p)
			if len(got) != len(tc.want) {
				t.Errorf("want %q, the plan is:\n%s", tc.want, strings.Join(got, "\n"))
			}
			for n := range min(len(got), len(tc.want)) {
				if !strings.HasPrefix(strings.TrimSpace(got[n]), tc.want[n]) {
					t.Errorf("line %d is %q, want %q", n, got[n], tc.want[n])
				}
			}
			l.applyPlan(t, p)
			if rest := l.makePlan(t, g); !rest.IsEmpty() {
				t.Errorf("the plan after apply is not empty:\n%s", strings.Join(planLines(rest), "\n"))
			}
		})
	}
}

// TestRegionResumes kills an apply, and then a delete, after some of its calls. Another run must
// converge, and nothing must remain in the end.
func TestRegionResumes(t *testing.T) {
	cfg := startRegion(t)
	const last = 80 // about how many calls of a first apply change something
	for n := 3; n < last; n += 16 {
		name := fmt.Sprintf("c%d", n)
		g := desiredGraph(t, name, nil)
		applyUntilKilled(t, cfg, name, g, n)
		l := newTestCluster(cfg, name)
		l.applyPlan(t, l.makePlan(t, g))
		if rest := l.makePlan(t, g); !rest.IsEmpty() {
			t.Fatalf("killed at call %d, not converged:\n%s", n, strings.Join(planLines(rest), "\n"))
		}
		applyUntilKilled(t, cfg, name, &graph.Graph{}, n)
		l.applyPlan(t, l.makePlan(t, &graph.Graph{}))
		if left := listTaggedResources(t, cfg, name); len(left) > 0 {
			t.Errorf("killed at call %d, remaining: %v", n, left)
		}
	}
}

// applyUntilKilled applies g and stops like a killed process after the n-th call that changes something.
func applyUntilKilled(t *testing.T, cfg sdk.Config, cluster string, g *graph.Graph, n int) {
	t.Helper()
	killed := newTestCluster(killAfterCalls(cfg, n), cluster)
	have, err := newTestCluster(cfg, cluster).cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := plan.Compute(g, have, plan.Options{DestroyData: true})
	err = plan.Applier{Cloud: killed.cloud, Now: time.Now}.Apply(t.Context(), p)
	if err == nil || !errors.Is(err, errKilled) {
		t.Logf("%s: call %d was not reached or not the cause: %v", cluster, n, err)
	}
}

var errKilled = errors.New("killed")

// killAfterCalls passes n calls that change something. The response to the last of them is lost, and all
// later calls fail.
func killAfterCalls(cfg sdk.Config, n int) sdk.Config {
	var mu sync.Mutex
	next := http.DefaultTransport
	cfg = cfg.Copy()
	cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		n--
		left := n
		mu.Unlock()
		if left < 0 {
			return nil, errKilled
		}
		resp, err := next.RoundTrip(r)
		if left == 0 && err == nil {
			resp.Body.Close()
			return nil, errKilled
		}
		return resp, err
	})}
	return cfg
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestUserTagsComeAndGo checks that every resource that can have tags has those of the manifest,
// including instances, volumes and network interfaces; that a tag that is removed from the manifest
// is removed in AWS; and that tags that others set are kept.
func TestUserTagsComeAndGo(t *testing.T) {
	cfg := startRegion(t)
	l := newTestCluster(cfg, "demo")
	with := func(tags map[string]string) *graph.Graph {
		return desiredGraph(t, "demo", func(in *model.Input) { in.Cluster.Spec.Tags = tags })
	}
	l.applyPlan(t, l.makePlan(t, with(map[string]string{"team": "a", "cost": "7"})))
	// read returns the tags of each resource, and those of the resources that auto scaling created.
	read := func() map[string]map[string]string {
		have, err := l.cloud.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]map[string]string{}
		for _, a := range have {
			for _, f := range graph.Fields(a.Resource) {
				if tags, ok := f.Value.(map[string]any); ok && f.IsTags {
					out[string(a.Addr)] = map[string]string{}
					for k, v := range tags {
						out[string(a.Addr)][k] = fmt.Sprint(v)
					}
				}
			}
		}
		return out
	}
	e := sdkec2.NewFromConfig(cfg)
	for addr, tags := range read() {
		if tags["team"] != "a" || tags["cost"] != "7" {
			t.Errorf("%s has the tags %v", addr, tags)
		}
	}
	for _, kind := range []string{"instance", "volume", "network-interface"} {
		tagged, err := e.DescribeTags(t.Context(), &sdkec2.DescribeTagsInput{Filters: []ec2types.Filter{
			{Name: sdk.String("resource-type"), Values: []string{kind}}, {Name: sdk.String("tag:team"), Values: []string{"a"}},
		}})
		if err != nil || len(tagged.Tags) < 5 {
			t.Errorf("%d of 5 instances have a %s with the tag: %v", len(tagged.Tags), kind, err)
		}
	}
	have, err := l.cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range have {
		if a.Addr == "vpc/main" {
			if _, err := e.CreateTags(t.Context(), &sdkec2.CreateTagsInput{Resources: []string{a.ID}, Tags: []ec2types.Tag{{Key: sdk.String("backup"), Value: sdk.String("yes")}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, left := range []map[string]string{{"team": "a"}, nil} {
		g := with(left)
		l.applyPlan(t, l.makePlan(t, g))
		if rest := l.makePlan(t, g); !rest.IsEmpty() {
			t.Errorf("after %v:\n%s", left, strings.Join(planLines(rest), "\n"))
		}
		for addr, tags := range read() {
			if _, still := tags["cost"]; still || tags["team"] != left["team"] || addr == "vpc/main" && tags["backup"] != "yes" {
				t.Errorf("with %v in the manifest, %s has the tags %v", left, addr, tags)
			}
		}
	}
}
