// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const clusterStack = "slipway-demo"

// stackPolicies returns what an operator has whose cluster CloudFormation creates.
func (l *lab) stackPolicies() []iampolicy.Policy {
	l.Helper()

	return append(l.policies("demo", "--allow-existing"), l.policies("demo", "--stack")...)
}

// TestStackPolicyIsEnough: an operator with the everyday policies and that for stacks creates a cluster by CloudFormation,
// changes and deletes it, with Slipway and with the CLI of AWS. Nothing else is denied, and each action of the policy for
// stacks is needed. CloudFormation creates a key with its tags and enables its rotation at once, when KMS does not see the tags
// yet: seen to end in ROLLBACK_FAILED, while the operator might do that only by the tags. No attack: what the limits must not break.
func TestStackPolicyIsEnough(t *testing.T) {
	r := recordedRights{of: ":user/operator", denied: map[string]bool{}}
	l := newLabWith(t, regiontest.Options{TraceAuthorization: r.note})
	policies, operator := l.prepareStack()
	l.actAsMachines()
	l.liveByStack(operator)
	l.attach("operator", "deletion", l.policies("demo", "--deletion")[0])
	l.must(operator, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")
	l.useStack(operator)

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(r.denied)) {
		t.Errorf("denied: %s", what)
	}

	l.checkNeeded(policies, r.asked)
}

// recordedRights are the requests of a user, and what they were denied. note may be called concurrently.
type recordedRights struct {
	of     string // the end of the user's ARN
	mu     sync.Mutex
	denied map[string]bool
	asked  []authz.Request
}

func (r *recordedRights) note(asked authz.Request, d authz.Decision) {
	if !strings.HasSuffix(asked.Principal.ARN, r.of) {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, asked)
	if !d.Allowed && asked.Action != "iam:GetAccountAuthorizationDetails" { // it saves calls
		r.denied[asked.Action+" on "+asked.Resource] = true
	}
}

// prepareStack returns the policies of an operator whose cluster CloudFormation creates, which name what it has, and the operator.
func (l *lab) prepareStack() ([]iampolicy.Policy, caller) {
	l.Helper()
	l.must(caller{}, 0, "state", "init", "--yes")
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	policies := l.stackPolicies()
	operator := l.user("operator", policies)
	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes")

	return policies, operator
}

// actAsMachines has each machine signal to its stack that it works, and ends the drains of machines, as their agents do.
func (l *lab) actAsMachines() {
	ctx, stop := context.WithCancel(context.WithoutCancel(l.Context()))
	done := make(chan struct{})
	l.Cleanup(func() { stop(); <-done })
	machines := ec2.NewFromConfig(l.config(caller{}))
	stacks := cloudformation.NewFromConfig(l.config(caller{}))
	groups := autoscaling.NewFromConfig(l.config(caller{}))

	go func() {
		defer close(done)
		for ctx.Err() == nil {
			signalReady(ctx, machines, stacks)
			completeDrains(ctx, groups)
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

// signalReady signals what a group's stack waits for, and what it waits for of the whole control plane. A signal for which it
// does not wait is refused.
func signalReady(ctx context.Context, machines *ec2.Client, stacks *cloudformation.Client) {
	out, err := machines.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if err != nil {
		return
	}

	for _, reservation := range out.Reservations {
		for _, m := range reservation.Instances {
			tags := map[string]string{}
			for _, t := range m.Tags {
				tags[*t.Key] = *t.Value
			}

			for _, id := range []string{tags["aws:cloudformation:logical-id"], "ControlPlaneReady"} {
				if m.State.Name != ec2types.InstanceStateNameRunning || id == "ControlPlaneReady" && tags["slipway.dev/etcd-slot"] == "" {
					continue
				}

				_, _ = stacks.SignalResource(ctx, &cloudformation.SignalResourceInput{
					StackName: sdk.String(clusterStack), LogicalResourceId: &id,
					UniqueId: m.InstanceId, Status: cfntypes.ResourceSignalStatusSuccess,
				})
			}
		}
	}
}

// completeDrains completes the lifecycle action of every machine that is to be terminated.
func completeDrains(ctx context.Context, groups *autoscaling.Client) {
	out, err := groups.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{})
	if err != nil {
		return
	}

	for _, m := range out.AutoScalingInstances {
		if sdk.ToString(m.LifecycleState) == string(astypes.LifecycleStateTerminatingWait) {
			_, _ = groups.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
				AutoScalingGroupName: m.AutoScalingGroupName, LifecycleHookName: sdk.String(model.TerminationHook),
				InstanceId: m.InstanceId, LifecycleActionResult: sdk.String("CONTINUE"),
			})
		}
	}
}

// liveByStack creates and changes a cluster by a stack.
func (l *lab) liveByStack(operator caller) {
	l.Helper()
	l.must(operator, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	l.must(operator, changes, "plan", "demo", "--via", "cloudformation")
	l.must(operator, 0, "apply", "demo", "--via", "cloudformation", "--yes")
	l.must(operator, 0, "plan", "demo")

	text := l.must(operator, 0, "get", "clusters", "demo", "-o", "yaml")
	const old = "natGateways: PerZone"
	if !strings.Contains(text, old) {
		l.Fatalf("the manifest has another number of NAT gateways:\n%s", text)
	}

	file := l.temporaryFile("cluster.yaml", strings.Replace(text, old, "natGateways: Single", 1))
	l.must(operator, 0, "replace", "-f", file, "--yes")
	l.must(operator, changes, "plan", "demo")
	l.must(operator, 0, "apply", "demo", "--yes")
	l.must(operator, 0, "plan", "demo")
}

// useStack makes the calls of who deploys a rendered template with AWS's own programs, and those of a repair.
func (l *lab) useStack(operator caller) {
	l.Helper()
	api := cloudformation.NewFromConfig(l.config(operator))
	name := sdk.String(clusterStack)
	template := func(description string) *string {
		return sdk.String(`{"Description":"` + description + `","Resources":{"Igw":{"Type":"AWS::EC2::InternetGateway",` +
			`"Properties":{"Tags":[{"Key":"slipway.dev/cluster","Value":"demo"},{"Key":"d","Value":"` + description + `"}]}},` +
			`"Key":{"Type":"AWS::KMS::Key","DeletionPolicy":"Retain","Properties":{"EnableKeyRotation":true,` +
			`"Tags":[{"Key":"slipway.dev/cluster","Value":"demo"}]}}}}`)
	}
	l.region.DelayVisibility(2) // KMS sees the tags of the key late
	_, err := api.CreateStack(l.Context(), &cloudformation.CreateStackInput{StackName: name, TemplateBody: template("one")})
	l.check(err)
	l.waitForStack(api, cfntypes.StackStatusCreateComplete)
	l.region.DelayVisibility(0)
	_, err = api.UpdateStack(l.Context(), &cloudformation.UpdateStackInput{StackName: name, TemplateBody: template("two")})
	l.check(err)
	l.waitForStack(api, cfntypes.StackStatusUpdateComplete)
	_, err = api.ListChangeSets(l.Context(), &cloudformation.ListChangeSetsInput{StackName: name})
	l.check(err)
	_, err = api.ContinueUpdateRollback(l.Context(), &cloudformation.ContinueUpdateRollbackInput{StackName: name})
	if err == nil || strings.Contains(err.Error(), "AccessDenied") {
		l.Errorf("continue a rollback that is none: %v", err)
	}

	_, err = api.DeleteStack(l.Context(), &cloudformation.DeleteStackInput{StackName: name})
	l.check(err)
}

// waitForStack waits until the stack has a status.
func (l *lab) waitForStack(api *cloudformation.Client, want cfntypes.StackStatus) {
	l.Helper()
	for range 600 {
		out, err := api.DescribeStacks(l.Context(), &cloudformation.DescribeStacksInput{StackName: sdk.String(clusterStack)})
		l.check(err)
		status := out.Stacks[0].StackStatus
		if status == want {
			return
		}

		if !strings.HasSuffix(string(status), "_IN_PROGRESS") {
			l.Fatalf("the stack is %s and not %s: %s", status, want, sdk.ToString(out.Stacks[0].StackStatusReason))
		}

		time.Sleep(50 * time.Millisecond)
	}

	l.Fatalf("the stack does not become %s", want)
}

// checkNeeded removes each action of the policy for stacks, which is the last one, and decides all requests again: some
// request must be denied then.
func (l *lab) checkNeeded(policies []iampolicy.Policy, asked []authz.Request) {
	l.Helper()
	last := len(policies) - 1
	for i, s := range policies[last].Statement {
		for _, action := range s.Action {
			text, err := json.Marshal(policies[last])
			l.check(err)
			var less iampolicy.Policy
			l.check(json.Unmarshal(text, &less))
			less.Statement[i].Action = slices.DeleteFunc(slices.Clone(s.Action), func(a string) bool { return a == action })
			if len(less.Statement[i].Action) == 0 {
				less.Statement = slices.Delete(less.Statement, i, i+1)
			}

			rest := l.parse(append(slices.Clone(policies[:last]), less))
			isNeeded := slices.ContainsFunc(asked, func(r authz.Request) bool {
				return r.Action == action && !authz.Evaluate(rest, r).Allowed
			})
			if !isNeeded {
				l.Errorf("%s in statement %s is not needed", action, s.Sid)
			}
		}
	}
}

// TestStackOperatorIsLimited: who may use the cluster's stack, and writes templates for it, does with them nothing that an
// operator without a stack cannot: no role without the boundary, no service role, no stack of others, no key of others. Seen
// to succeed with a policy that allows the stack and tags of keys without these conditions.
func TestStackOperatorIsLimited(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	operator := l.user("operator", l.stackPolicies())
	api := cloudformation.NewFromConfig(l.config(operator))
	role := func(properties string) string {
		return `{"Resources":{"R":{"Type":"AWS::IAM::Role","Properties":{"RoleName":"own","Path":"` + rolePath + `",` + properties +
			`"AssumeRolePolicyDocument":` + selfmade + `}}}}`
	}
	for what, template := range map[string]string{
		"a role without the boundary":  role(""),
		"a role with another boundary": role(`"PermissionsBoundary":"arn:aws:iam::aws:policy/AdministratorAccess",`),
		"a role outside of the path":   strings.Replace(role(`"PermissionsBoundary":"`+boundary+`",`), rolePath, "/", 1),
		"a key of another cluster": `{"Resources":{"K":{"Type":"AWS::KMS::Key","Properties":{"KeyPolicy":{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:root"},"Action":"kms:*","Resource":"*"}]},` +
			`"Tags":[{"Key":"slipway.dev/cluster","Value":"demo-2"}]}}}}`,
	} {
		l.stackIsRefused(api, what, template)
	}

	name := sdk.String(clusterStack)
	body := sdk.String(`{"Resources":{"W":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`)
	_, err := api.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: sdk.String("payments"), TemplateBody: body})
	l.denied("create a stack of others", err)
	_, err = api.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: sdk.String(clusterStack + "-2"), TemplateBody: body})
	l.denied("create the stack of another cluster", err)
	_, err = api.CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: name, TemplateBody: body, RoleARN: sdk.String("arn:aws:iam::" + regiontest.AccountID + ":role/admin"),
	})
	l.denied("give the stack a service role", err)
	_, err = api.CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: name, TemplateBody: body, RoleARN: sdk.String("arn:aws:iam::" + regiontest.AccountID + ":role" + rolePath + "own"),
	})
	l.denied("give the stack a role of the cluster", err)

	other, err := kms.NewFromConfig(l.config(caller{})).CreateKey(t.Context(), &kms.CreateKeyInput{})
	l.check(err)
	_, err = kms.NewFromConfig(l.config(operator)).TagResource(t.Context(), &kms.TagResourceInput{
		KeyId: other.KeyMetadata.KeyId,
		Tags:  []kmstypes.Tag{{TagKey: sdk.String("slipway.dev/cluster"), TagValue: sdk.String("demo")}},
	})
	l.denied("tag a key of others without CloudFormation", err)

	_, err = cloudformation.NewFromConfig(l.config(caller{})).CreateStack(t.Context(), &cloudformation.CreateStackInput{
		StackName: sdk.String("payments"), TemplateBody: body,
	})
	l.check(err)
	_, err = api.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: sdk.String("payments")})
	l.denied("delete a stack of others", err)
	_, err = api.UpdateStack(t.Context(), &cloudformation.UpdateStackInput{StackName: sdk.String("payments"), TemplateBody: body})
	l.denied("update a stack of others", err)
}

// stackIsRefused creates the cluster's stack with a template, and checks that CloudFormation lacks the operator's permission
// to do what it says.
func (l *lab) stackIsRefused(api *cloudformation.Client, what, template string) {
	l.Helper()
	name := sdk.String(clusterStack)
	_, err := api.CreateStack(l.Context(), &cloudformation.CreateStackInput{
		StackName: name, TemplateBody: &template, OnFailure: cfntypes.OnFailureDoNothing,
		Capabilities: []cfntypes.Capability{cfntypes.CapabilityCapabilityNamedIam},
	})
	l.check(err)
	l.waitForStack(api, cfntypes.StackStatusCreateFailed)
	events, err := api.DescribeStackEvents(l.Context(), &cloudformation.DescribeStackEventsInput{StackName: name})
	l.check(err)
	isDenied := slices.ContainsFunc(events.StackEvents, func(e cfntypes.StackEvent) bool {
		return strings.Contains(sdk.ToString(e.ResourceStatusReason), "not authorized")
	})
	if !isDenied {
		l.Errorf("%s: the stack failed for another reason: %s", what, fmt.Sprint(events.StackEvents))
	}

	_, err = api.DeleteStack(l.Context(), &cloudformation.DeleteStackInput{StackName: name})
	l.check(err)
	for range 600 {
		_, err := api.DescribeStacks(l.Context(), &cloudformation.DescribeStacksInput{StackName: name})
		if err != nil {
			return
		}

		time.Sleep(20 * time.Millisecond)
	}

	l.Fatalf("%s: the stack is not deleted", what)
}
