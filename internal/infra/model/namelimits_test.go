// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// textLimit is AWS's limit of a property.
type textLimit struct {
	longest int    // in characters
	pattern string // of allowed characters; empty for any
}

// textLimits are AWS's limits of names and descriptions, by kind and property. See docs/aws-facts.md for the sources.
func textLimits() map[string]textLimit {
	const iamName, groupText = `^[\w+=,.@-]+$`, `^[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]+$`
	balancer := textLimit{32, `^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`}
	return map[string]textLimit{
		"autoscaling-group AutoScalingGroupName":   {255, `^[^:]+$`},
		"dns-record Name":                          {255, ``},
		"hosted-zone Name":                         {255, ``},
		"iam-role Description":                     {1000, ``},
		"iam-role Path":                            {512, `^/([\w+=,.@-]+/)*$`},
		"iam-role RoleName":                        {64, iamName},
		"iam-role-policy PolicyName":               {128, iamName},
		"iam-instance-profile InstanceProfileName": {128, iamName},
		"iam-instance-profile Path":                {512, `^/([\w+=,.@-]+/)*$`},
		"key-pair KeyName":                         {255, `^[ -~]+$`},
		"kms-alias AliasName":                      {256, `^alias/[a-zA-Z0-9/_-]+$`},
		"kms-key Description":                      {8192, ``},
		"launch-template LaunchTemplateName":       {128, `^[a-zA-Z0-9().\-/_]{3,}$`},
		"lifecycle-hook LifecycleHookName":         {255, `^[A-Za-z0-9\-_/]+$`},
		"load-balancer Name":                       balancer,
		"security-group GroupDescription":          {255, groupText},
		"security-group GroupName":                 {255, groupText},
		"security-group-egress Description":        {255, groupText},
		"security-group-ingress Description":       {255, groupText},
		"target-group Name":                        balancer,
		"vpc-endpoint ServiceName":                 {255, ``}, // AWS's own name
		"iam-oidc-provider Url":                    {255, ``},
		"log-group LogGroupName":                   {512, `^[.\-_/#A-Za-z0-9]+$`},
		"lambda-function FunctionName":             {64, `^[a-zA-Z0-9_-]+$`},
		"lambda-function Description":              {256, ``},
		"event-rule Name":                          {64, `^[.\-_A-Za-z0-9]+$`},
		"event-rule Description":                   {512, ``},
		"sns-topic TopicName":                      {256, `^[A-Za-z0-9_-]+$`},
	}
}

// checkTexts compares the names, descriptions and tags of every resource with AWS's limits. A name or description without a
// limit in the table is an error.
func checkTexts(t *testing.T, g *graph.Graph) {
	t.Helper()
	limits, seen := textLimits(), map[string]graph.Addr{}
	isName := regexp.MustCompile(`(^|[a-z])Name$|Description$|^Path$|^Url$`)
	for _, n := range g.Nodes() {
		kind := n.Resource.Kind().Name
		for _, f := range graph.Fields(n.Resource) {
			if f.IsTags {
				checkTags(t, n.Addr, f.Value)
			}
			text, isText := f.Value.(string)
			if !isText || !isName.MatchString(f.Property) {
				continue
			}
			limit, known := limits[kind+" "+f.Property]
			if !known {
				t.Fatalf("%s: %s has no limit in the table", n.Addr, f.Property)
			}
			if len([]rune(text)) > limit.longest || limit.pattern != "" && !regexp.MustCompile(limit.pattern).MatchString(text) {
				t.Errorf("%s: %s has %d characters, AWS allows %d that match %s: %q", n.Addr, f.Property, len(text), limit.longest, limit.pattern, text)
			}
			if (kind == "load-balancer" || kind == "target-group") && strings.HasPrefix(text, "internal-") {
				t.Errorf("%s: %s begins with internal-: %q", n.Addr, f.Property, text)
			}
			key := kind + " " + f.Property + " " + strings.ToLower(text)
			if other := seen[key]; other != "" && kind != "iam-role-policy" && strings.HasSuffix(f.Property, "Name") && kind != "lifecycle-hook" && kind != "vpc-endpoint" {
				t.Errorf("%s and %s have the same name %q", n.Addr, other, text)
			}
			seen[key] = n.Addr
		}
		if template, ok := n.Resource.(awskind.LaunchTemplate); ok {
			for _, s := range template.Data.Tags {
				checkTags(t, n.Addr, s.Tags)
			}
		}
	}
}

// checkTags compares tags with AWS's limits: 50 tags, keys of 128 and values of 256 characters.
func checkTags(t *testing.T, addr graph.Addr, value any) {
	t.Helper()
	tags := map[string]string{}
	switch v := value.(type) {
	case map[string]string:
		tags = v
	case map[string]any:
		for k, text := range v {
			tags[k] = fmt.Sprint(text)
		}
	default:
		t.Fatalf("%s: tags are %T", addr, value)
	}
	if len(tags) > 50 {
		t.Errorf("%s has %d tags", addr, len(tags))
	}
	for k, v := range tags {
		if len([]rune(k)) > 128 || len([]rune(v)) > 256 {
			t.Errorf("%s: tag %q = %q has %d and %d characters", addr, k, v, len(k), len(v))
		}
	}
}

// longest returns a DNS label of n characters that begins with prefix.
func longest(prefix string, n int) string { return prefix + strings.Repeat("x", n-len(prefix)) }

// renameGroups gives every group and subnet of a set, and the cluster, the longest name that manifests may have.
func renameGroups(set *manifest.Set, cluster string) {
	set.Cluster.Metadata.Name = cluster
	for i := range set.Groups {
		g := &set.Groups[i]
		g.Metadata.Name = longest(string(rune('a'+i))+g.Metadata.Name+"-", 40)
		g.Metadata.Labels = map[string]string{"slipway.dev/cluster": cluster}
	}
}

// addMostTags adds as many and as long tags, labels, taints and service accounts as manifests may have.
func addMostTags(set *manifest.Set) {
	set.Cluster.Spec.Tags = map[string]string{}
	for i := range 37 {
		set.Cluster.Spec.Tags[longest(fmt.Sprintf("tag-%d-", i), 128)] = strings.Repeat("v", 256)
	}
	for i := range set.Groups {
		g := &set.Groups[i]
		g.Spec.CloudLabels = maps.Clone(set.Cluster.Spec.Tags)
		if g.Spec.Role != v1alpha1.RoleWorker {
			delete(g.Spec.CloudLabels, longest("tag-0-", 128))
			for n := range 4 {
				g.Spec.CloudLabels[longest(fmt.Sprintf("label-%d-", n), 128)] = strings.Repeat("v", 256)
			}
		}
		if g.Spec.Role == v1alpha1.RoleWorker {
			g.Spec.Autoscale = true
			g.Spec.IAM.Policies = []string{"arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}
		}
	}
}

// TestNamesFit: the names, descriptions and tags of every example fit AWS's limits with the longest names that manifests may
// have, in the regions of all partitions. CloudFormation and Terraform get them from the same graph.
func TestNamesFit(t *testing.T) {
	t.Parallel()
	regions := []string{"us-east-1", "ap-southeast-99", "cn-northwest-1", "us-gov-west-1", "us-isob-east-1", "eusc-de-east-1"}
	for _, x := range rendertest.Topologies() {
		for _, region := range regions {
			for _, name := range []string{longest("internal-", 40), longest("c", 40), "i"} {
				in := x.Input(t, region)
				set := manifest.Set{Cluster: in.Cluster, Groups: in.Groups}
				before := groupNames(set)
				renameGroups(&set, name)
				in.Cluster, in.Groups = set.Cluster, set.Groups
				in.Partition = partition.OfRegion(region).Name
				for i, old := range before {
					in.Images[set.Groups[i].Metadata.Name], in.Boot[set.Groups[i].Metadata.Name] = in.Images[old], in.Boot[old]
				}
				g := build(t, in)
				checkTexts(t, g)
				checkLogicalIDs(t, g)
				checkTargetGroups(t, g, set.Cluster.Metadata.Name)
				if t.Failed() {
					t.Fatalf("example %s in %s with the name %s", x.Name, region, name)
				}
			}
		}
	}
	long := longest("c", 40)
	if a, b := model.RoleName(long, "us-east-1", v1alpha1.RoleWorker), model.RoleName(long, "us-west-1", v1alpha1.RoleWorker); a == b {
		t.Errorf("two regions share the role %s", a)
	}
}

// checkTargetGroups: the policy of operators names all target groups.
func checkTargetGroups(t *testing.T, g *graph.Graph, cluster string) {
	t.Helper()
	for _, n := range g.Nodes() {
		if r, ok := n.Resource.(awskind.TargetGroup); ok && !slices.Contains(model.TargetGroupNames(cluster), r.Name) {
			t.Errorf("target group %s is not one of %q", r.Name, model.TargetGroupNames(cluster))
		}
	}
}

func groupNames(set manifest.Set) []string {
	var out []string
	for _, g := range set.Groups {
		out = append(out, g.Metadata.Name)
	}
	return out
}

// checkLogicalIDs: a logical ID of CloudFormation and the name of an output have at most 255 characters.
func checkLogicalIDs(t *testing.T, g *graph.Graph) {
	t.Helper()
	ids, err := cloudformation.LogicalIDs(g)
	if err != nil {
		t.Fatal(err)
	}
	for addr, id := range ids {
		if len(id) > 255 {
			t.Errorf("%s: the logical ID has %d characters: %s", addr, len(id), id)
		}
	}
}

// TestMostTagsFit: as many and as long tags, labels and service accounts as manifests may have fit AWS's limits.
func TestMostTagsFit(t *testing.T) {
	t.Parallel()
	in := with(t, func(s *manifest.Set) {
		addBastion(s)
		renameGroups(s, longest("c", 40))
		addMostTags(s)
		s.Cluster.Spec.Etcd.RecreateVolumesAfter = v1alpha1.RecreateVolumesNever // its policy would name all tags
		s.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://oidc/demo"
		s.Cluster.Spec.IAM.ServiceAccountExternalPermissions = []v1alpha1.ServiceAccountPermissions{
			{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("a", 253), AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: readPolicy}},
			{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("a", 251) + ".b", AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: readPolicy}},
		}
	})
	for i := range in.Groups {
		in.Images[in.Groups[i].Metadata.Name] = model.Image{ID: "ami-1", RootDevice: "/dev/xvda"}
		in.Boot[in.Groups[i].Metadata.Name] = model.BootSource{AgentURL: "s3://store/a", AgentSHA256: "0", DocumentURL: "s3://store/d", DocumentSHA256: "0"}
	}
	g := build(t, in)
	checkTexts(t, g)
	checkLogicalIDs(t, g)
	most := 0
	for _, n := range g.Nodes() {
		if group, ok := n.Resource.(awskind.AutoScalingGroup); ok {
			most = max(most, len(group.Tags))
		}
	}
	if most != 50 {
		t.Errorf("the limits of manifests leave room: %d tags of a group, AWS allows 50", most)
	}
}

// TestTooManyTagsAreRefused: what would exceed AWS's limits of tags is a finding with field, value and fix.
func TestTooManyTagsAreRefused(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 40) + "." + strings.Repeat("d", 40) + ".example.com/x"
	for want, change := range map[string]func(*manifest.Set){
		"spec.cloudLabels \"4\": makes 42 tags with spec.tags of the cluster": func(s *manifest.Set) {
			addMostTags(s)
			s.Groups[0].Spec.CloudLabels = map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""}
			delete(s.Groups[0].Spec.CloudLabels, "e")
			s.Cluster.Spec.Tags["38"] = ""
			workers(s).CloudLabels, workers(s).Autoscale = nil, false
		},
		"spec.autoscale \"true\": needs a tag for each label and taint: with spec.tags of the cluster and cloudLabels 38 tags": func(s *manifest.Set) {
			addMostTags(s)
			workers(s).NodeLabels = map[string]string{"example.com/a": "b"}
		},
		"spec.nodeLabels[" + label + "]": func(s *manifest.Set) {
			workers(s).Autoscale, workers(s).NodeLabels = true, map[string]string{label: "b"}
		},
		"spec.taints[0]": func(s *manifest.Set) {
			workers(s).Autoscale, workers(s).Taints = true, []string{label + "=b:NoSchedule"}
		},
	} {
		in := input(t, manifest.NewSetOptions{})
		set := manifest.Set{Cluster: in.Cluster, Groups: slices.Clone(in.Groups)}
		change(&set)
		err := manifest.Validate(manifest.Default(set)).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
