// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"context"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	render "github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestAgreement creates every topology directly in one region, and with CloudFormation in another.
// The AWS CLI shows the same resources in both, except for IDs, the tags of CloudFormation, and the
// signals of machines to the stack.
func TestAgreement(t *testing.T) {
	t.Parallel()
	cli := newAWSCLI(t)
	for _, x := range judgedTopologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			reportVerdict(t, x.Name, "agreement", "aws-cli")
			skipUnlessJudged(t, x.Name)
			one, other := regiontest.Start(t), regiontest.Start(t)
			d := directJudge{cfg: one.AWSConfig(), fixDefects: keepResource}
			d.buildCluster(t, d.prepareTopology(t, x).Input(t, regiontest.RegionName)).apply(t)
			s := stackJudge{directJudge: directJudge{cfg: other.AWSConfig(), fixDefects: keepResource}}
			x = s.prepareTopology(t, x)
			s.createStack(t, x.StackGraph(t, regiontest.RegionName))
			if cli.missing == "" {
				compareViews(t, cli.readAccount(t, one), cli.readAccount(t, other).withoutSignals())
			}
			s.deleteStack(t)
			cli.skipIfMissing(t) // the stack was created and deleted in any case
		})
	}
}

// stackJudge creates clusters with CloudFormation. In place of the machines, it sends the signals
// that their user data tells them to send.
type stackJudge struct{ directJudge }

const stackName = "cluster"

func (s stackJudge) newClient() *cloudformation.Client { return cloudformation.NewFromConfig(s.cfg) }

func (s stackJudge) createStack(t *testing.T, g *graph.Graph) {
	t.Helper()
	body, err := render.Render(g, render.Options{Description: "agreement"})
	failOnError(t, err)
	text := string(body)
	in := &cloudformation.CreateStackInput{
		StackName: new(stackName), Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
	}
	if in.TemplateBody = &text; len(body) > render.MaxBodySize {
		in.TemplateBody, in.TemplateURL = nil, new(s.uploadTemplate(t, text))
	}
	_, err = s.newClient().CreateStack(t.Context(), in)
	failOnError(t, err)
	s.waitForStatus(t, cfntypes.StackStatusCreateComplete)
}

// uploadTemplate uploads a template to a bucket if it is too long for a request.
func (s stackJudge) uploadTemplate(t *testing.T, text string) string {
	t.Helper()
	api := s3.NewFromConfig(s.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: new("templates")})
	failOnError(t, err)
	_, err = api.PutObject(t.Context(), &s3.PutObjectInput{Bucket: new("templates"), Key: new("t.json"), Body: strings.NewReader(text)})
	failOnError(t, err)
	return *s.cfg.BaseEndpoint + "/templates/t.json"
}

// waitForStatus sends the signals of machines until the stack has reached a status.
func (s stackJudge) waitForStatus(t *testing.T, want cfntypes.StackStatus) {
	t.Helper()
	const limit = 10 * time.Minute // a stack that never ends; every topology has one at the same time, next to Terraform
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	told := map[string]bool{}
	for ctx.Err() == nil {
		out, err := s.newClient().DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: new(stackName)})
		if err != nil && want == cfntypes.StackStatusDeleteComplete {
			return // a deleted stack is not found by its name
		}
		failOnError(t, err)
		switch status := out.Stacks[0].StackStatus; {
		case status == want:
			return
		case !strings.HasSuffix(string(status), "IN_PROGRESS"):
			t.Fatalf("the stack is %s: %s\n%s", status, deref(out.Stacks[0].StackStatusReason), s.listFailures(t))
		}
		s.signalMachines(t, told)
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the stack is not %s after %s:\n%s", want, limit, s.listFailures(t))
}

// listFailures returns the stack events that report a failure.
func (s stackJudge) listFailures(t *testing.T) string {
	t.Helper()
	out, err := s.newClient().DescribeStackEvents(t.Context(), &cloudformation.DescribeStackEventsInput{StackName: new(stackName)})
	failOnError(t, err)
	var b strings.Builder
	for _, e := range out.StackEvents {
		b.WriteString(deref(e.LogicalResourceId) + " " + string(e.ResourceStatus) + " " + deref(e.ResourceStatusReason) + "\n")
	}
	return b.String()
}

// signalPattern matches the stack and resource that a machine's configuration tells it to signal.
// In an Ignition configuration, they are part of a URL.
var signalPattern = regexp.MustCompile(`(?:,"|%2C%22)signal(?:":"|%22:%22)([^"%]*)(?:","|%22%2C%22)stack(?:":"|%22:%22)([^"%]*)(?:"|%22)`)

// signalMachines sends the signal that each healthy machine sends to the resources in its user
// data.
func (s stackJudge) signalMachines(t *testing.T, told map[string]bool) {
	t.Helper()
	api, ctx := ec2.NewFromConfig(s.cfg), t.Context()
	list, err := api.DescribeInstances(ctx, nil)
	failOnError(t, err)
	for _, r := range list.Reservations {
		for _, i := range r.Instances {
			if told[*i.InstanceId] || i.State.Name != ec2types.InstanceStateNameRunning {
				continue
			}
			out, err := api.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
				InstanceId: i.InstanceId, Attribute: ec2types.InstanceAttributeNameUserData,
			})
			failOnError(t, err)
			script, err := base64.StdEncoding.DecodeString(deref(out.UserData.Value))
			failOnError(t, err)
			told[*i.InstanceId] = s.sendSignal(t, *i.InstanceId, string(script))
		}
	}
}

// sendSignal sends a signal. It returns false if a resource does not accept signals yet.
func (s stackJudge) sendSignal(t *testing.T, machine, script string) bool {
	t.Helper()
	m := signalPattern.FindStringSubmatch(script)
	if m == nil {
		return true
	}
	all := true
	for id := range strings.SplitSeq(m[1], ",") {
		_, err := s.newClient().SignalResource(t.Context(), &cloudformation.SignalResourceInput{
			StackName: &m[2], LogicalResourceId: &id, UniqueId: &machine, Status: cfntypes.ResourceSignalStatusSuccess,
		})
		all = all && err == nil
	}
	return all
}

func (s stackJudge) deleteStack(t *testing.T) {
	t.Helper()
	_, err := s.newClient().DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: new(stackName)})
	failOnError(t, err)
	s.waitForStatus(t, cfntypes.StackStatusDeleteComplete)
}

// withoutSignals removes the parts with which machines signal their stack, and the placeholder
// egress rule.
func (v accountView) withoutSignals() accountView {
	out, _ := removeSignals(map[string]any(v)).(map[string]any)
	return out
}

func removeSignals(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if s, ok := e.(string); ok && k == "UserData" {
				if plain, err := base64.StdEncoding.DecodeString(s); err == nil {
					e = base64.StdEncoding.EncodeToString(signalPattern.ReplaceAll(plain, nil))
				}
			}
			out[k] = removeSignals(e)
		}
		return out
	case []any:
		var out []any
		for _, e := range x {
			// CloudFormation needs an egress rule that matches nothing, to remove EC2's default
			// rule, which allows all traffic.
			m, _ := e.(map[string]any)
			if m["Sid"] != "Signal" && !isPlaceholderRule(m) {
				out = append(out, removeSignals(e))
			}
		}
		return out
	}
	return v
}

// isPlaceholderRule reports whether m is a rule, a permission or a range of the placeholder egress rule.
func isPlaceholderRule(m map[string]any) bool {
	const nowhere = "127.0.0.1/32"
	if m["CidrIp"] == nowhere || m["CidrIpv4"] == nowhere {
		return true
	}
	ranges, _ := m["IpRanges"].([]any)
	if len(ranges) != 1 {
		return false
	}
	only, _ := ranges[0].(map[string]any)
	return only["CidrIp"] == nowhere
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// The graph for a stack differs from the applied graph in the signals only.
func TestStackGraph(t *testing.T) {
	for _, x := range judgedTopologies() {
		in := x.Input(t, regiontest.RegionName)
		plain, fs := model.Build(in)
		failOnError(t, fs.Err())
		if a, b := len(plain.Nodes()), len(x.StackGraph(t, regiontest.RegionName).Nodes()); a != b {
			t.Errorf("%s: %d resources, %d in a stack", x.Name, a, b)
		}
	}
}
