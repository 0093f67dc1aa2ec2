// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestFunctionNames: the name of a function has up to 64 characters and no dot, and differs for clusters that differ.
func TestFunctionNames(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for _, cluster := range []string{"demo", "a.b", "a-b", "a.b.c", longest("c", 40), longest("c.", 63), longest("d.", 63)} {
		name := model.FunctionName(cluster)
		if !regexp.MustCompile(`^slipway-dns-[a-z0-9-]{1,52}$`).MatchString(name) {
			t.Errorf("%s: %s", cluster, name)
		}
		if other := names[name]; other != "" {
			t.Errorf("%s and %s have the function %s", cluster, other, name)
		}
		names[name] = cluster
	}
}

// etcdDNS returns the example with discovery by DNS.
func etcdDNS(t *testing.T) rendertest.Topology {
	t.Helper()
	return exampleNamed(t, "etcd-dns")
}

// exampleNamed returns the example with a name.
func exampleNamed(t *testing.T, name string) rendertest.Topology {
	t.Helper()
	for _, x := range rendertest.Topologies() {
		if x.Name == name {
			return x
		}
	}
	t.Fatal("there is no example " + name)
	return rendertest.Topology{}
}

// TestFunctionOfEtcd: the function's zone is that of its records, its role is limited to that zone, the machines of the control
// plane wait until their launches trigger the function, and the rule names their groups.
func TestFunctionOfEtcd(t *testing.T) {
	t.Parallel()
	g := etcdDNS(t).Graph(t)
	zone, _ := g.Node("hosted-zone/etcd").Resource.(awskind.HostedZone)
	if zone.Name != v1alpha1.EtcdZone("etcd-dns") || len(zone.VPCs) != 1 {
		t.Errorf("the zone is %+v", zone)
	}

	policy, _ := g.Node("iam-role-policy/dns").Resource.(awskind.IAMRolePolicy)
	text := policy.Document.Text().String()
	for _, want := range []string{
		"arn:aws:route53:::hostedzone/${hosted-zone/etcd}", node.PeerService("etcd-dns"), node.ClientService("etcd-dns"), "etcd-?.etcd-dns.internal",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the policy lacks %s: %s", want, text)
		}
	}

	rule, _ := g.Node("event-rule/dns").Resource.(awskind.EventRule)
	for _, slot := range []string{"a", "b", "c"} {
		n := g.Node(graph.Addr("autoscaling-group/control-plane-" + slot))
		group, _ := n.Resource.(awskind.AutoScalingGroup)
		if !strings.Contains(string(rule.Pattern), `"`+group.Name+`"`) {
			t.Errorf("the rule does not name %s: %s", group.Name, rule.Pattern)
		}
		if !strings.Contains(strings.Join(addrs(n.ExplicitDeps), " "), "lambda-permission/dns") {
			t.Errorf("%s does not wait until launches trigger the function: %v", n.Addr, n.ExplicitDeps)
		}
	}
	if strings.Contains(string(rule.Pattern), "workers") {
		t.Errorf("the rule names workers: %s", rule.Pattern)
	}
}

func addrs(list []graph.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, string(a))
	}
	return out
}

// TestFunctionFindings: the code must be published, and the cluster's own zone cannot have the name of the records' zone.
func TestFunctionFindings(t *testing.T) {
	t.Parallel()
	in := etcdDNS(t).Input(t, "us-east-1")
	in.FunctionCode = model.FunctionCode{}
	if _, fs := model.Build(in); !strings.Contains(fs.Err().Error(), "was not published") {
		t.Errorf("without code: %v", fs)
	}

	in = etcdDNS(t).Input(t, "us-east-1")
	in.Cluster.Spec.DNSZone = "etcd-dns.internal"
	in.Cluster.Spec.API.PublicName = "api.etcd-dns.internal"
	for _, kind := range []string{"Private", "Public"} {
		in.Cluster.Spec.Topology.DNS.Type = kind
		if _, fs := model.Build(in); fs.Err() == nil || !strings.Contains(fs.Err().Error(), "a VPC can have only one") {
			t.Errorf("two zones of a name, %s: %v", kind, fs)
		}
		found := manifest.Validate(manifest.Set{Cluster: in.Cluster, Groups: in.Groups})
		if err := found.Err(); err == nil || !strings.Contains(err.Error(), `spec.dnsZone "etcd-dns.internal"`) {
			t.Errorf("the manifest allows what the model refuses, %s: %v", kind, found)
		}
	}

	in.Cluster.Spec.Etcd.Discovery = v1alpha1.EtcdDiscoveryTags
	if g, fs := model.Build(in); fs.Err() != nil || g.Node("lambda-function/dns") != nil {
		t.Errorf("with tags: %v", fs)
	}
}

// TestTopicOfEtcd: with SNS, the groups of the control plane send notifications of launches and terminations to a topic of the
// cluster, whose policy gives nothing to others, and wait for the subscription of the function. Without EventBridge, the rule
// has only its schedule.
func TestTopicOfEtcd(t *testing.T) {
	t.Parallel()
	in := exampleNamed(t, "etcd-dns-sns").Input(t, "us-east-1")
	for _, events := range [][]string{{"EventBridge", "SNS"}, {"SNS"}} {
		in.Cluster.Spec.Etcd.DiscoveryEvents = events
		g, fs := model.Build(in)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}

		topic, _ := g.Node("sns-topic/dns").Resource.(awskind.SNSTopic)
		policy := string(topic.Policy.Document)
		for _, want := range []string{
			`"Action":["sns:Publish"]`, `"AWS":"arn:aws:iam::123456789012:root"`, `"Resource":["arn:aws:sns:us-east-1:123456789012:slipway-dns-etcd-dns-sns"]`,
			`"aws:PrincipalArn":"arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling*"`,
		} {
			if !strings.Contains(policy, want) {
				t.Errorf("the policy of the topic lacks %s: %s", want, policy)
			}
		}
		if topic.Name != "slipway-dns-etcd-dns-sns" {
			t.Errorf("the topic is %s", topic.Name)
		}

		rule, _ := g.Node("event-rule/dns").Resource.(awskind.EventRule)
		if hasPattern := rule.Pattern != ""; hasPattern != (len(events) == 2) || rule.Schedule == "" {
			t.Errorf("%v: the rule is %+v", events, rule)
		}

		checkNotifications(t, g)
	}
}

// checkNotifications checks which groups send which notifications.
func checkNotifications(t *testing.T, g *graph.Graph) {
	t.Helper()
	for _, n := range g.Nodes() {
		group, isGroup := n.Resource.(awskind.AutoScalingGroup)
		if !isGroup {
			continue
		}
		isControlPlane := strings.Contains(string(n.Addr), "control-plane-")
		if !isControlPlane && len(group.Notifications) > 0 || isControlPlane && (len(group.Notifications) != 1 ||
			strings.Join(group.Notifications[0].Types, " ") != "autoscaling:EC2_INSTANCE_LAUNCH autoscaling:EC2_INSTANCE_TERMINATE" ||
			group.Notifications[0].Topic.Addr() != "sns-topic/dns") {
			t.Errorf("%s sends %+v", n.Addr, group.Notifications)
		}
		if isControlPlane && !strings.Contains(strings.Join(addrs(n.ExplicitDeps), " "), "sns-subscription/dns") {
			t.Errorf("%s does not wait for the subscription: %v", n.Addr, n.ExplicitDeps)
		}
	}
	after := strings.Join(addrs(g.Node("sns-subscription/dns").ExplicitDeps), " ")
	if !strings.Contains(after, "lambda-permission/dns-sns") || !strings.Contains(after, "lambda-invocation/dns") {
		t.Errorf("the subscription waits for %s", after)
	}
}
