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
	render "github.com/slipway-k8s/slipway/internal/infra/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/target/targettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestAgreement builds every topology directly in one region and by CloudFormation in another. The AWS CLI sees the same
// in both, but for identities, for what CloudFormation writes into tags, and for what lets a machine signal its stack.
func TestAgreement(t *testing.T) {
	t.Parallel()
	cli := newAWSCLI(t)
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			cell(t, x.Name, "agreement", "aws-cli")
			one, other := regiontest.Start(t), regiontest.Start(t)
			d := direct{cfg: one.Config(), known: same}
			d.cluster(t, d.prepare(t, x).Input(t, regiontest.Name)).apply(t)
			s := stack{direct: direct{cfg: other.Config(), known: same}}
			x = s.prepare(t, x)
			s.create(t, x.StackGraph(t, regiontest.Name))
			if cli.missing == "" {
				agree(t, cli.look(t, one), cli.look(t, other).withoutSignals())
			}
			s.remove(t)
			cli.needed(t) // the stack was made and deleted in any case
		})
	}
}

// stack makes clusters by CloudFormation, and plays their machines: it signals what their user data tells them to.
type stack struct{ direct }

const stackName = "cluster"

func (s stack) api() *cloudformation.Client { return cloudformation.NewFromConfig(s.cfg) }

func (s stack) create(t *testing.T, g *graph.Graph) {
	t.Helper()
	body, err := render.Render(g, render.Options{Description: "agreement"})
	check(t, err)
	text := string(body)
	in := &cloudformation.CreateStackInput{
		StackName: new(stackName), Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
	}
	if in.TemplateBody = &text; len(body) > render.MaxBody {
		in.TemplateBody, in.TemplateURL = nil, new(s.upload(t, text))
	}
	_, err = s.api().CreateStack(t.Context(), in)
	check(t, err)
	s.await(t, cfntypes.StackStatusCreateComplete)
}

// upload puts a template that is too long for a request into a bucket.
func (s stack) upload(t *testing.T, text string) string {
	t.Helper()
	api := s3.NewFromConfig(s.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	_, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: new("templates")})
	check(t, err)
	_, err = api.PutObject(t.Context(), &s3.PutObjectInput{Bucket: new("templates"), Key: new("t.json"), Body: strings.NewReader(text)})
	check(t, err)
	return *s.cfg.BaseEndpoint + "/templates/t.json"
}

// await lets machines signal until the stack has reached a status.
func (s stack) await(t *testing.T, want cfntypes.StackStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := map[string]bool{}
	for ctx.Err() == nil {
		out, err := s.api().DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: new(stackName)})
		if err != nil && want == cfntypes.StackStatusDeleteComplete {
			return // one that is gone has no name any more
		}
		check(t, err)
		switch status := out.Stacks[0].StackStatus; {
		case status == want:
			return
		case !strings.HasSuffix(string(status), "IN_PROGRESS"):
			t.Fatalf("the stack is %s: %s\n%s", status, deref(out.Stacks[0].StackStatusReason), s.failures(t))
		}
		s.signal(t, told)
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the stack is not %s after a minute:\n%s", want, s.failures(t))
}

// failures are the events that tell of one.
func (s stack) failures(t *testing.T) string {
	t.Helper()
	out, err := s.api().DescribeStackEvents(t.Context(), &cloudformation.DescribeStackEventsInput{StackName: new(stackName)})
	check(t, err)
	var b strings.Builder
	for _, e := range out.StackEvents {
		b.WriteString(deref(e.LogicalResourceId) + " " + string(e.ResourceStatus) + " " + deref(e.ResourceStatusReason) + "\n")
	}
	return b.String()
}

// toSignal is what a machine's configuration tells it of its stack; in an Ignition configuration it is part of a URL.
var toSignal = regexp.MustCompile(`(?:,"|%2C%22)signal(?:":"|%22:%22)([^"%]*)(?:","|%22%2C%22)stack(?:":"|%22:%22)([^"%]*)(?:"|%22)`)

// signal does what each machine does once it is well: it tells the resources that its user data names.
func (s stack) signal(t *testing.T, told map[string]bool) {
	t.Helper()
	api, ctx := ec2.NewFromConfig(s.cfg), t.Context()
	list, err := api.DescribeInstances(ctx, nil)
	check(t, err)
	for _, r := range list.Reservations {
		for _, i := range r.Instances {
			if told[*i.InstanceId] || i.State.Name != ec2types.InstanceStateNameRunning {
				continue
			}
			out, err := api.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
				InstanceId: i.InstanceId, Attribute: ec2types.InstanceAttributeNameUserData,
			})
			check(t, err)
			script, err := base64.StdEncoding.DecodeString(deref(out.UserData.Value))
			check(t, err)
			told[*i.InstanceId] = s.tell(t, *i.InstanceId, string(script))
		}
	}
}

// tell signals; false if some resource takes no signal yet.
func (s stack) tell(t *testing.T, machine, script string) bool {
	t.Helper()
	m := toSignal.FindStringSubmatch(script)
	if m == nil {
		return true
	}
	all := true
	for id := range strings.SplitSeq(m[1], ",") {
		_, err := s.api().SignalResource(t.Context(), &cloudformation.SignalResourceInput{
			StackName: &m[2], LogicalResourceId: &id, UniqueId: &machine, Status: cfntypes.ResourceSignalStatusSuccess,
		})
		all = all && err == nil
	}
	return all
}

func (s stack) remove(t *testing.T) {
	t.Helper()
	_, err := s.api().DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: new(stackName)})
	check(t, err)
	s.await(t, cfntypes.StackStatusDeleteComplete)
}

// withoutSignals leaves out what lets a machine tell its stack that it is well, and the rule that stands for no rule.
func (v view) withoutSignals() view {
	out, _ := unsignalled(map[string]any(v)).(map[string]any)
	return out
}

func unsignalled(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if s, ok := e.(string); ok && k == "UserData" {
				if plain, err := base64.StdEncoding.DecodeString(s); err == nil {
					e = base64.StdEncoding.EncodeToString(toSignal.ReplaceAll(plain, nil))
				}
			}
			out[k] = unsignalled(e)
		}
		return out
	case []any:
		var out []any
		for _, e := range x {
			// CloudFormation needs a rule that matches nothing to take out EC2's own, which lets everything out.
			m, _ := e.(map[string]any)
			if m["Sid"] != "Signal" && !(m["IpProtocol"] == "icmp" && m["FromPort"] == 252.0 && m["ToPort"] == 86.0) {
				out = append(out, unsignalled(e))
			}
		}
		return out
	}
	return v
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// The graph for a stack differs from the one that is applied in nothing but the signals.
func TestStackGraph(t *testing.T) {
	for _, x := range targettest.Topologies() {
		in := x.Input(t, regiontest.Name)
		plain, fs := model.Build(in)
		check(t, fs.Err())
		if a, b := len(plain.Nodes()), len(x.StackGraph(t, regiontest.Name).Nodes()); a != b {
			t.Errorf("%s: %d resources, %d in a stack", x.Name, a, b)
		}
	}
}
