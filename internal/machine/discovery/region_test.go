// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/discovery"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestMain is the Lambda function when the local region starts this program as one. cmd/slipway-dns does the same.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		os.Exit(m.Run())
	}

	function, err := discovery.New(context.Background(), os.Getenv, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	runtimeapi.Start(function.Handle)
}

const (
	dnsRoleTrust = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}}`
	functionARN  = "arn:aws:lambda:us-east-1:123456789012:function:dns"
)

// leastPolicy allows the function's role what it needs: records of its names and types in its zone, and nothing else.
func leastPolicy(zone string) string {
	return fmt.Sprintf(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":["ec2:DescribeInstances","ec2:DescribeVolumes"],"Resource":"*"},
		{"Effect":"Allow","Action":"route53:ListResourceRecordSets","Resource":"arn:aws:route53:::hostedzone/%[1]s"},
		{"Effect":"Allow","Action":"route53:ChangeResourceRecordSets","Resource":"arn:aws:route53:::hostedzone/%[1]s","Condition":{
			"ForAllValues:StringLike":{"route53:ChangeResourceRecordSetsNormalizedRecordNames":
				["etcd-?.demo.internal","_etcd-server-ssl._tcp.demo.internal","_etcd-client-ssl._tcp.demo.internal"]},
			"ForAllValues:StringEquals":{"route53:ChangeResourceRecordSetsRecordTypes":["A","SRV"],
				"route53:ChangeResourceRecordSetsActions":["UPSERT","DELETE"]}}},
		{"Effect":"Allow","Action":["logs:CreateLogStream","logs:PutLogEvents"],"Resource":"arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/dns:*"}]}`,
		zone)
}

// cloud is a region in which three groups of one machine have the slots of a control plane.
type cloud struct {
	t       *testing.T
	cfg     aws.Config
	zone    string
	scaling *autoscaling.Client
	ec2     *ec2.Client
	records *route53.Client
	logs    *cloudwatchlogs.Client
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := emptyCloud(t)
	c.createZone()
	c.uploadCode()
	c.createFunction()
	c.createRule()

	return c
}

// emptyCloud returns a region without the function.
func emptyCloud(t *testing.T) *cloud {
	t.Helper()
	cfg := regiontest.StartWith(t, regiontest.Options{DeleteRetryTimeout: 2 * time.Second}).AWSConfig()

	return &cloud{
		t:       t,
		cfg:     cfg,
		scaling: autoscaling.NewFromConfig(cfg),
		ec2:     ec2.NewFromConfig(cfg),
		records: route53.NewFromConfig(cfg),
		logs:    cloudwatchlogs.NewFromConfig(cfg),
	}
}

func (c *cloud) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cloud) createZone() {
	c.t.Helper()
	vpcs, err := c.ec2.DescribeVpcs(c.t.Context(), &ec2.DescribeVpcsInput{})
	c.check(err)
	out, err := c.records.CreateHostedZone(c.t.Context(), &route53.CreateHostedZoneInput{
		Name: aws.String(v1alpha1.EtcdZone("demo")), CallerReference: aws.String("one"),
		VPC: &r53types.VPC{VPCId: vpcs.Vpcs[0].VpcId, VPCRegion: "us-east-1"},
	})
	c.check(err)
	c.zone = strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

// uploadCode puts the code of the function into a bucket.
func (c *cloud) uploadCode() {
	c.t.Helper()
	ctx := c.t.Context()
	buckets := s3.NewFromConfig(c.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("code-1")})
	c.check(err)
	_, err = buckets.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("code-1"), Key: aws.String("dns.zip"), Body: bytes.NewReader(regiontest.NewDeploymentPackage(c.t, regiontest.ScriptOfTest(c.t)))})
	c.check(err)
}

// createFunction deploys this program as the function, with a role that has no more rights than it needs.
func (c *cloud) createFunction() {
	c.t.Helper()
	ctx := c.t.Context()
	roles := iam.NewFromConfig(c.cfg)
	role, err := roles.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String("dns"), AssumeRolePolicyDocument: aws.String(dnsRoleTrust)})
	c.check(err)
	_, err = roles.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String("dns"), PolicyName: aws.String("records"), PolicyDocument: aws.String(leastPolicy(c.zone))})
	c.check(err)
	_, err = c.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("/aws/lambda/dns")})
	c.check(err)

	functions := lambda.NewFromConfig(c.cfg)
	_, err = functions.CreateFunction(ctx, &lambda.CreateFunctionInput{
		FunctionName: aws.String("dns"), Role: role.Role.Arn, Handler: aws.String("bootstrap"), Runtime: lambdatypes.RuntimeProvidedal2023,
		Timeout: aws.Int32(30), Code: &lambdatypes.FunctionCode{S3Bucket: aws.String("code-1"), S3Key: aws.String("dns.zip")},
		Environment: &lambdatypes.Environment{Variables: map[string]string{
			discovery.EnvCluster: "demo", discovery.EnvClusterID: "0123", discovery.EnvZone: c.zone,
		}},
	})
	c.check(err)
	_, err = functions.AddPermission(ctx, &lambda.AddPermissionInput{
		FunctionName: aws.String("dns"), StatementId: aws.String("events"), Action: aws.String("lambda:InvokeFunction"),
		Principal: aws.String("events.amazonaws.com"), SourceArn: aws.String("arn:aws:events:us-east-1:123456789012:rule/dns"),
	})
	c.check(err)
}

func (c *cloud) createRule() {
	c.t.Helper()
	pattern, err := json.Marshal(map[string]any{
		"source":      []string{"aws.autoscaling"},
		"detail-type": []string{"EC2 Instance Launch Successful", "EC2 Instance Terminate Successful"},
		"detail":      map[string]any{"AutoScalingGroupName": []string{"slot-a", "slot-b", "slot-c"}},
	})
	c.check(err)

	events := eventbridge.NewFromConfig(c.cfg)
	_, err = events.PutRule(c.t.Context(), &eventbridge.PutRuleInput{Name: aws.String("dns"), EventPattern: aws.String(string(pattern))})
	c.check(err)
	_, err = events.PutTargets(c.t.Context(), &eventbridge.PutTargetsInput{
		Rule: aws.String("dns"), Targets: []eventtypes.Target{{Id: aws.String("function"), Arn: aws.String(functionARN)}},
	})
	c.check(err)
}

// createTopic creates a topic, to which the function is subscribed, and sends notifications of the groups to it.
func (c *cloud) createTopic(groups ...string) {
	c.t.Helper()
	ctx := c.t.Context()
	topics := sns.NewFromConfig(c.cfg)
	topic, err := topics.CreateTopic(ctx, &sns.CreateTopicInput{Name: aws.String("dns")})
	c.check(err)
	_, err = lambda.NewFromConfig(c.cfg).AddPermission(ctx, &lambda.AddPermissionInput{
		FunctionName: aws.String("dns"), StatementId: aws.String("sns"), Action: aws.String("lambda:InvokeFunction"),
		Principal: aws.String("sns.amazonaws.com"), SourceArn: topic.TopicArn,
	})
	c.check(err)
	_, err = topics.Subscribe(ctx, &sns.SubscribeInput{TopicArn: topic.TopicArn, Protocol: aws.String("lambda"), Endpoint: aws.String(functionARN)})
	c.check(err)

	for _, group := range groups {
		_, err := c.scaling.PutNotificationConfiguration(ctx, &autoscaling.PutNotificationConfigurationInput{
			AutoScalingGroupName: aws.String("slot-" + group), TopicARN: topic.TopicArn,
			NotificationTypes: []string{"autoscaling:EC2_INSTANCE_LAUNCH", "autoscaling:EC2_INSTANCE_TERMINATE"},
		})
		c.check(err)
	}
}

// createGroups creates a group of one machine for each slot.
func (c *cloud) createGroups(slots ...string) {
	c.t.Helper()
	ctx := c.t.Context()
	_, err := c.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("machines"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String(regiontest.ImageID), InstanceType: "t3.micro"},
	})
	c.check(err)
	subnets, err := c.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	c.check(err)

	for _, slot := range slots {
		var tags []astypes.Tag
		for k, v := range map[string]string{
			"slipway.dev/cluster": "demo", "slipway.dev/id": "0123", "slipway.dev/role": "control-plane", "slipway.dev/etcd-slot": slot,
		} {
			tags = append(tags, astypes.Tag{Key: &k, Value: &v, PropagateAtLaunch: aws.Bool(true)})
		}

		_, err := c.scaling.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("slot-" + slot), MinSize: aws.Int32(1), MaxSize: aws.Int32(1),
			LaunchTemplate:    &astypes.LaunchTemplateSpecification{LaunchTemplateName: aws.String("machines"), Version: aws.String("1")},
			VPCZoneIdentifier: subnets.Subnets[0].SubnetId, Tags: tags,
		})
		c.check(err)
	}
}

// machines returns the running machines: id and address by slot.
func (c *cloud) machines() (ids, addresses map[string]string) {
	c.t.Helper()
	out, err := c.ec2.DescribeInstances(c.t.Context(), &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"running"}}},
	})
	c.check(err)

	ids = map[string]string{}
	addresses = map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			for _, tag := range i.Tags {
				if *tag.Key == "slipway.dev/etcd-slot" {
					ids[*tag.Value] = *i.InstanceId
					addresses[*tag.Value] = *i.PrivateIpAddress
				}
			}
		}
	}

	return ids, addresses
}

// read returns the records of the zone but those that every zone has, as "values TTL" by name.
func (c *cloud) read() map[string]string {
	c.t.Helper()
	out, err := c.records.ListResourceRecordSets(c.t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &c.zone})
	c.check(err)

	found := map[string]string{}
	for _, r := range out.ResourceRecordSets {
		if r.Type == r53types.RRTypeNs || r.Type == r53types.RRTypeSoa {
			continue
		}

		var values []string
		for _, v := range r.ResourceRecords {
			values = append(values, *v.Value)
		}

		slices.Sort(values)
		found[*r.Name] = fmt.Sprintf("%s %s %d", r.Type, strings.Join(values, ", "), *r.TTL)
	}

	return found
}

// wantRecords returns the records for the addresses of slots.
func wantRecords(addresses map[string]string) map[string]string {
	out := map[string]string{}
	var clients, peers []string
	for _, slot := range slices.Sorted(maps.Keys(addresses)) {
		out["etcd-"+slot+".demo.internal."] = "A " + addresses[slot] + " 10"
		clients = append(clients, "0 0 2379 etcd-"+slot+".demo.internal.")
		peers = append(peers, "0 0 2380 etcd-"+slot+".demo.internal.")
	}

	out["_etcd-client-ssl._tcp.demo.internal."] = "SRV " + strings.Join(clients, ", ") + " 60"
	out["_etcd-server-ssl._tcp.demo.internal."] = "SRV " + strings.Join(peers, ", ") + " 60"

	return out
}

// waitForRecords waits until all slots have a machine that fits, and the records are theirs.
func (c *cloud) waitForRecords(fits func(ids map[string]string) bool) map[string]string {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ids, addresses := c.machines()
		diff := cmp.Diff(wantRecords(addresses), c.read())
		if len(ids) > 0 && fits(ids) && diff == "" {
			return ids
		}

		if time.Now().After(deadline) {
			c.t.Fatalf("machines %v; records (-want +have):\n%s\nlog:\n%s", ids, diff, c.log())
		}

		time.Sleep(50 * time.Millisecond)
	}
}

func (c *cloud) log() string {
	c.t.Helper()
	out, err := c.logs.FilterLogEvents(c.t.Context(), &cloudwatchlogs.FilterLogEventsInput{LogGroupName: aws.String("/aws/lambda/dns")})
	c.check(err)

	var b strings.Builder
	for _, e := range out.Events {
		b.WriteString(*e.Message + "\n")
	}

	return b.String()
}

// TestRecordsFollowNotifications: without any rule of EventBridge, notifications of Auto Scaling reach the function through a
// topic, and the records follow the machines. The test notifications are full comparisons too: they find the machines that
// were launched before.
func TestRecordsFollowNotifications(t *testing.T) {
	t.Parallel()
	c := emptyCloud(t)
	c.createZone()
	c.uploadCode()
	c.createFunction()
	c.createGroups("a", "b", "c")
	c.createTopic("a", "b", "c")
	first := c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 3 })
	c.waitForLog(`autoscaling:TEST_NOTIFICATION`)

	_, err := c.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first["b"]}})
	c.check(err)
	c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 3 && ids["b"] != first["b"] })
	c.waitForLog(`autoscaling:EC2_INSTANCE_LAUNCH`)

	c.resize("c")
	c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 2 })
	c.waitForLog(`autoscaling:EC2_INSTANCE_TERMINATE`)
}

// TestRecordsFollowMachines: the local region emits the events of Auto Scaling, runs the function with a role of its own,
// and the records follow the machines: when they are launched, when one is replaced, and when a group gets smaller. They
// stay when the last machine is gone.
func TestRecordsFollowMachines(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.createGroups("a", "b", "c")
	first := c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 3 })

	_, err := c.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first["b"]}})
	c.check(err)
	c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 3 && ids["b"] != first["b"] })

	c.resize("c")
	c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 2 })

	// One after the other: a run that wrote the records of the last machine, and sees then that it has ended, takes them back.
	c.resize("a")
	c.waitForRecords(func(ids map[string]string) bool { return len(ids) == 1 })

	last := c.read()
	c.resize("b")
	c.waitForLog(`"machines":0,"changes":0`)
	ids, _ := c.machines()
	after := c.read()
	if len(ids) != 0 || len(after) == 0 || after["_etcd-server-ssl._tcp.demo.internal."] == "" {
		t.Errorf("without machines (%v) the records are %v, before %v", ids, after, last)
	}
}
