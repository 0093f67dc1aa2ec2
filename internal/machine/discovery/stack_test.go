// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// stackTemplate has everything that discovery by DNS needs, and one machine of the control plane. Without cleaning it lacks
// the custom resource that lets the function remove its records.
func (c *cloud) stackTemplate(cleaning bool) string {
	c.t.Helper()
	vpcs, err := c.ec2.DescribeVpcs(c.t.Context(), &ec2.DescribeVpcsInput{})
	c.check(err)
	subnets, err := c.ec2.DescribeSubnets(c.t.Context(), &ec2.DescribeSubnetsInput{})
	c.check(err)

	type object = map[string]any
	resource := func(kind string, properties object, after ...string) object {
		out := object{"Type": kind, "Properties": properties}
		if len(after) > 0 {
			out["DependsOn"] = after
		}

		return out
	}
	arnOf := func(name string) object { return object{"Fn::GetAtt": []string{name, "Arn"}} }

	var policy any
	c.check(json.Unmarshal([]byte(strings.ReplaceAll(leastPolicy("ZONE"), "ZONE", "${Zone}")), &policy))
	var withZone func(v any) any
	withZone = func(v any) any {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "${") {
				return object{"Fn::Sub": v}
			}
		case []any:
			for i := range v {
				v[i] = withZone(v[i])
			}
		case object:
			for k := range v {
				v[k] = withZone(v[k])
			}
		}

		return v
	}

	var tags []object
	for k, v := range map[string]string{
		"slipway.dev/cluster": "demo", "slipway.dev/id": "0123", "slipway.dev/role": "control-plane", "slipway.dev/etcd-slot": "a",
	} {
		tags = append(tags, object{"Key": k, "Value": v, "PropagateAtLaunch": true})
	}

	last := "Permission"
	resources := object{
		"Zone": resource("AWS::Route53::HostedZone", object{"Name": "demo.internal", "VPCs": []object{{"VPCId": vpcs.Vpcs[0].VpcId, "VPCRegion": "us-east-1"}}}),
		"Role": resource("AWS::IAM::Role", object{"AssumeRolePolicyDocument": json.RawMessage(dnsRoleTrust)}),
		"Rights": resource("AWS::IAM::RolePolicy", object{
			"RoleName": object{"Ref": "Role"}, "PolicyName": "records", "PolicyDocument": withZone(policy),
		}),
		"Log": resource("AWS::Logs::LogGroup", object{"LogGroupName": "/aws/lambda/dns", "RetentionInDays": 14}),
		"Function": resource("AWS::Lambda::Function", object{
			"FunctionName": "dns", "Runtime": "provided.al2023", "Handler": "bootstrap", "Timeout": 30, "Role": arnOf("Role"),
			"Code": object{"S3Bucket": "code-1", "S3Key": "dns.zip"},
			"Environment": object{"Variables": object{
				discovery.EnvCluster: "demo", discovery.EnvClusterID: "0123", discovery.EnvZone: object{"Ref": "Zone"},
			}},
		}, "Rights", "Log"),
		"Rule": resource("AWS::Events::Rule", object{
			"EventPattern": object{"source": []string{"aws.autoscaling"}, "detail": object{"AutoScalingGroupName": []string{"slot-a"}}},
			"Targets":      []object{{"Id": "function", "Arn": arnOf("Function")}},
		}),
		"Permission": resource("AWS::Lambda::Permission", object{
			"Action": "lambda:InvokeFunction", "FunctionName": object{"Ref": "Function"}, "Principal": "events.amazonaws.com", "SourceArn": arnOf("Rule"),
		}),
		"Template": resource("AWS::EC2::LaunchTemplate", object{"LaunchTemplateData": object{"ImageId": regiontest.ImageID, "InstanceType": "t3.micro"}}),
	}
	if cleaning {
		last = "Records"
		resources["Records"] = resource("AWS::CloudFormation::CustomResource", object{"ServiceToken": arnOf("Function")}, "Permission")
	}

	resources["Group"] = resource("AWS::AutoScaling::AutoScalingGroup", object{
		"AutoScalingGroupName": "slot-a", "MinSize": "1", "MaxSize": "1", "VPCZoneIdentifier": []*string{subnets.Subnets[0].SubnetId}, "Tags": tags,
		"LaunchTemplate": object{"LaunchTemplateId": object{"Ref": "Template"}, "Version": "1"},
	}, last)
	body, err := json.Marshal(object{"Resources": resources})
	c.check(err)

	return string(body)
}

// runStack creates and deletes the stack of a template, and returns its last status. In between it calls do.
func (c *cloud) runStack(body string, do func()) cfntypes.Stack {
	c.t.Helper()
	api := cloudformation.NewFromConfig(c.cfg)
	created, err := api.CreateStack(c.t.Context(), &cloudformation.CreateStackInput{
		StackName: aws.String("dns"), TemplateBody: &body, Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
	})
	c.check(err)

	settle := func() cfntypes.Stack {
		for {
			out, err := api.DescribeStacks(c.t.Context(), &cloudformation.DescribeStacksInput{StackName: created.StackId})
			c.check(err)
			if s := out.Stacks[0]; !strings.HasSuffix(string(s.StackStatus), "_IN_PROGRESS") {
				return s
			}

			time.Sleep(50 * time.Millisecond)
		}
	}
	if s := settle(); s.StackStatus != cfntypes.StackStatusCreateComplete {
		c.t.Fatalf("the stack is %s: %s\n%s", s.StackStatus, aws.ToString(s.StackStatusReason), c.log())
	}

	zones, err := c.records.ListHostedZones(c.t.Context(), &route53.ListHostedZonesInput{})
	c.check(err)
	c.zone = strings.TrimPrefix(*zones.HostedZones[0].Id, "/hostedzone/")
	do()

	_, err = api.DeleteStack(c.t.Context(), &cloudformation.DeleteStackInput{StackName: created.StackId})
	c.check(err)

	return settle()
}

// TestDeletionRemovesRecords: CloudFormation cannot delete a zone that has records. The custom resource lets the function
// remove those that it made, after the machines are gone.
func TestDeletionRemovesRecords(t *testing.T) {
	t.Parallel()
	for cleaning, want := range map[bool]cfntypes.StackStatus{
		false: cfntypes.StackStatusDeleteFailed,
		true:  cfntypes.StackStatusDeleteComplete,
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			c := emptyCloud(t)
			c.uploadCode()
			after := c.runStack(c.stackTemplate(cleaning), func() {
				c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 1 })
			})

			zones, err := c.records.ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
			c.check(err)
			if after.StackStatus != want || (len(zones.HostedZones) == 0) != cleaning {
				t.Errorf("the stack is %s (%s) and the zones are %v, want %s", after.StackStatus, aws.ToString(after.StackStatusReason), zones.HostedZones, want)
			}
		})
	}
}

// resize sets the size of the groups of slots to 0.
func (c *cloud) resize(slots ...string) {
	c.t.Helper()
	for _, slot := range slots {
		_, err := c.scaling.UpdateAutoScalingGroup(c.t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("slot-" + slot), MinSize: aws.Int32(0), DesiredCapacity: aws.Int32(0),
		})
		c.check(err)
	}
}

func (c *cloud) waitForLog(text string) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(c.log(), text) {
		if time.Now().After(deadline) {
			c.t.Fatalf("the log lacks %s:\n%s", text, c.log())
		}

		time.Sleep(50 * time.Millisecond)
	}
}
