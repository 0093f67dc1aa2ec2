// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// fleet is a group whose machines signal.
const fleet = `
Parameters:
  Type: {Type: String, Default: t3.medium}
  Timeout: {Type: String, Default: PT30S}
  Pause: {Type: String, Default: PT30S}
  Least: {Type: Number, Default: 1}
  Max: {Type: String, Default: "3"}
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Net: {Type: AWS::EC2::Subnet, Properties: {VpcId: !Ref Vpc, CidrBlock: 10.0.1.0/24}}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: ami-0123456789abcdef0, InstanceType: !Ref Type}}
  Group:
    Type: AWS::AutoScaling::AutoScalingGroup
    CreationPolicy: {ResourceSignal: {Count: 2, Timeout: !Ref Timeout}}
    UpdatePolicy:
      AutoScalingRollingUpdate:
        MaxBatchSize: 1
        MinInstancesInService: !Ref Least
        WaitOnResourceSignals: true
        PauseTime: !Ref Pause
        SuspendProcesses: [HealthCheck, AZRebalance]
    Properties:
      MinSize: "2"
      MaxSize: !Ref Max
      VPCZoneIdentifier: [!Ref Net]
      LaunchTemplate: {LaunchTemplateId: !Ref Template, Version: !GetAtt Template.LatestVersionNumber}
      Tags: [{Key: own, Value: v, PropagateAtLaunch: true}]
`

func (l *lab) signal(stack, logical, id string, status types.ResourceSignalStatus) error {
	_, err := l.cfn.SignalResource(l.ctx(), &cfn.SignalResourceInput{StackName: &stack, LogicalResourceId: &logical, UniqueId: &id, Status: status})
	return err
}

// report signals for one machine of the fleet that serves and was not there before, and says which; empty if none would.
func (l *lab) report(before map[string]string, status types.ResourceSignalStatus) string {
	l.t.Helper()
	for id := range l.members() {
		if before[id] == "" && l.signal("f", "Group", id, status) == nil {
			return id
		}
	}
	return ""
}

// members are the instances of stack f's group in service, with the version of the template that each came from.
func (l *lab) members() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	name := l.physical("f", "Group")
	if name == "" {
		return out
	}
	got := must[*autoscaling.DescribeAutoScalingGroupsOutput](l)(autoscaling.NewFromConfig(l.region.AWSConfig()).DescribeAutoScalingGroups(l.ctx(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}}))
	for _, g := range got.AutoScalingGroups {
		for _, i := range g.Instances {
			if i.LifecycleState == "InService" {
				out[*i.InstanceId] = *i.LaunchTemplate.Version
			}
		}
	}
	return out
}

// tend signals well for each machine of the fleet once it serves, but those of before, until its stack is settled.
func (l *lab) tend(before map[string]string) types.Stack {
	l.t.Helper()
	sent := maps.Clone(before)
	if sent == nil {
		sent = map[string]string{}
	}
	var st types.Stack
	l.until("the stack is settled", func() bool {
		for id := range l.members() {
			if sent[id] == "" && l.signal("f", "Group", id, types.ResourceSignalStatusSuccess) == nil {
				sent[id] = "sent"
			}
		}
		st = l.describe("f")
		return !strings.HasSuffix(string(st.StackStatus), "_IN_PROGRESS")
	})
	return st
}

func TestCreationWaitsForSignals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.begin("f", fleet)
	l.until("two machines serve", func() bool { return len(l.members()) == 2 })
	ids := l.members()
	var first string
	for id := range ids {
		first = id
	}
	for range 2 { // one machine that signals twice counts once
		if err := l.signal("f", "Group", first, types.ResourceSignalStatusSuccess); err != nil {
			t.Fatal(err)
		}
	}
	if st := l.describe("f"); st.StackStatus != types.StackStatusCreateInProgress {
		t.Errorf("after one signal the stack is %s", st.StackStatus)
	}
	if err := l.signal("f", "Vpc", "x", types.ResourceSignalStatusSuccess); !strings.Contains(refused(err), "Resource Vpc is in CREATE_COMPLETE state and cannot be signaled") {
		t.Errorf("a signal to what waits for none: %s", refused(err))
	}
	if err := l.signal("f", "Nothing", "x", types.ResourceSignalStatusSuccess); !strings.Contains(refused(err), "does not exist") {
		t.Errorf("a signal to nothing: %s", refused(err))
	}
	for id := range ids {
		if id == first {
			continue
		}
		if err := l.signal("f", "Group", id, types.ResourceSignalStatusSuccess); err != nil {
			t.Fatal(err)
		}
	}
	l.want(l.settle("f"), "CREATE_COMPLETE")
	l.told("f", "CREATE_IN_PROGRESS Group Received SUCCESS signal with UniqueId i-")
	for id := range ids {
		tags := l.tags(id)
		if tags["aws:cloudformation:logical-id"] != "Group" || tags["own"] != "v" {
			t.Errorf("tags of %s: %v", id, tags)
		}
	}
}

func TestFailureSignalAndTimeoutRollBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ timeout, reason string }{
		"failure": {"PT30S", "CREATE_FAILED Group Received 1 FAILURE signal(s) out of 2. Unable to satisfy 100% MinSuccessfulInstancesPercent requirement"},
		"timeout": {"PT1S", "CREATE_FAILED Group Received 0 SUCCESS signal(s) out of 2. Unable to satisfy 100% MinSuccessfulInstancesPercent requirement"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.begin("f", fleet, "Timeout", c.timeout)
			if name == "failure" {
				l.until("it takes a signal", func() bool {
					return l.signal("f", "Group", "i-1", types.ResourceSignalStatusFailure) == nil
				})
			}
			l.want(l.settle("f"), "ROLLBACK_COMPLETE")
			l.told("f", c.reason)
		})
	}
}

func TestWaitConditions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.begin("w", `
Resources:
  Handle: {Type: AWS::CloudFormation::WaitConditionHandle}
  Wait: {Type: AWS::CloudFormation::WaitCondition, Properties: {Handle: !Ref Handle, Timeout: "30", Count: 2}}
  Gate: {Type: AWS::CloudFormation::WaitCondition, CreationPolicy: {ResourceSignal: {Count: 1, Timeout: PT30S}}}
Outputs: {Data: {Value: !GetAtt Wait.Data}}
`)
	l.until("the conditions wait", func() bool {
		return len(l.resources("w")) == 3 && l.resources("w")["Wait"].ResourceStatus == "CREATE_IN_PROGRESS"
	})
	_, path, _ := strings.Cut(l.physical("w", "Handle"), "/cloudformation-waitcondition/")
	put := func(path, body string) int {
		r, err := http.NewRequestWithContext(l.ctx(), http.MethodPut, l.region.URL+"/cloudformation-waitcondition/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for i := range 2 {
		if code := put(path, fmt.Sprintf(`{"Status":"SUCCESS","UniqueId":"%d","Reason":"r","Data":"d%d"}`, i, i)); code != http.StatusOK {
			t.Fatalf("the handle answers %d", code)
		}
	}
	if code := put(path+"0", `{"Status":"SUCCESS","UniqueId":"9"}`); code != http.StatusForbidden {
		t.Errorf("a handle that was never given answers %d", code)
	}
	if err := l.signal("w", "Gate", "a", types.ResourceSignalStatusSuccess); err != nil {
		t.Fatal(err)
	}
	st := l.settle("w")
	l.want(st, "CREATE_COMPLETE")
	if got := l.output(st, "Data"); got != `{"0":"d0","1":"d1"}` {
		t.Errorf("data: %s", got)
	}
}

func TestRollingUpdateWaitsForSignals(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.begin("f", fleet)
	l.want(l.tend(nil), "CREATE_COMPLETE")
	before := l.members()
	l.change("f", fleet, "Type", "t3.large")
	lowest := len(before)
	sent := maps.Clone(before) // a new one may serve already
	var st types.Stack
	l.until("the stack is settled", func() bool {
		now := l.members()
		lowest = min(lowest, len(now))
		for id := range now {
			if sent[id] == "" && l.signal("f", "Group", id, types.ResourceSignalStatusSuccess) == nil {
				sent[id] = "sent"
			}
		}
		st = l.describe("f")
		return !strings.HasSuffix(string(st.StackStatus), "_IN_PROGRESS")
	})
	l.want(st, "UPDATE_COMPLETE")
	if lowest < 1 {
		t.Error("no machine was in service")
	}
	after := l.members()
	for id, version := range after {
		if before[id] != "" || version != "2" {
			t.Errorf("machine %s of version %s is left", id, version)
		}
	}
	if len(after) != 2 {
		t.Errorf("%d machines", len(after))
	}
	l.told("f", "UPDATE_IN_PROGRESS Group Rolling update initiated. Terminating 2 obsolete instance(s) in batches of 1, while keeping at least 1 instance(s) in service. Waiting on resource signals with a timeout of PT30S")
	l.told("f", "UPDATE_IN_PROGRESS Group New instance(s) added to autoscaling group - Waiting on 1 resource signal(s) with a timeout of PT30S.")
	l.told("f", "UPDATE_IN_PROGRESS Group Successfully terminated instance(s) [i-")
	group := must[*autoscaling.DescribeAutoScalingGroupsOutput](l)(autoscaling.NewFromConfig(l.region.AWSConfig()).DescribeAutoScalingGroups(l.ctx(), &autoscaling.DescribeAutoScalingGroupsInput{})).AutoScalingGroups[0]
	if len(group.SuspendedProcesses) != 0 || *group.MinSize != 2 || *group.DesiredCapacity != 2 {
		t.Errorf("after the update: %d processes suspended, minimum %d, desired %d", len(group.SuspendedProcesses), *group.MinSize, *group.DesiredCapacity)
	}
}

// Where all machines must stay in service, there is one more for a while.
func TestRollingUpdateGrowsForAWhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.begin("f", fleet)
	l.want(l.tend(nil), "CREATE_COMPLETE")
	before := l.members()
	l.change("f", fleet, "Type", "t3.large", "Least", "2")
	l.want(l.tend(before), "UPDATE_COMPLETE")
	l.told("f", "UPDATE_IN_PROGRESS Group Temporarily setting autoscaling group MinSize and DesiredCapacity to 3.")
	versions := []string{}
	for _, v := range l.members() {
		versions = append(versions, v)
	}
	if !slices.Equal(versions, []string{"2", "2"}) {
		t.Errorf("versions in service: %v", versions)
	}
}

// A machine of the new kind that says it is not well stops the update, and the old kind comes back.
func TestRollingUpdateRollsBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	// The second group waits for the first; the update never reaches it.
	two := fleet + `
  Template2:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: ami-0123456789abcdef0, InstanceType: !Ref Type}}
  Group2:
    Type: AWS::AutoScaling::AutoScalingGroup
    DependsOn: Group
    Properties:
      MinSize: "0"
      MaxSize: "1"
      VPCZoneIdentifier: [!Ref Net]
      LaunchTemplate: {LaunchTemplateId: !Ref Template2, Version: !GetAtt Template2.LatestVersionNumber}
`
	l.begin("f", two)
	l.want(l.tend(nil), "CREATE_COMPLETE")
	before := l.members()
	l.change("f", two, "Type", "t3.large")
	l.until("a new machine serves", func() bool {
		id := l.report(before, types.ResourceSignalStatusFailure)
		if id != "" {
			before[id] = "broken"
		}
		return id != ""
	})
	l.until("it goes back", func() bool { return l.describe("f").StackStatus == types.StackStatusUpdateRollbackInProgress })
	l.want(l.tend(before), "UPDATE_ROLLBACK_COMPLETE")
	l.told("f", "UPDATE_FAILED Group Received 1 FAILURE signal(s) out of 1.")
	for id := range l.members() {
		if kind := l.instanceType(id); kind != "t3.medium" {
			t.Errorf("%s is a %s", id, kind)
		}
	}
	// Template2 went back to a third version. What nobody asked to change, does not.
	if cs := l.propose(&cfn.CreateChangeSetInput{StackName: aws.String("f"), TemplateBody: &two}); !strings.Contains(aws.ToString(cs.StatusReason), "didn't contain changes") {
		t.Errorf("the same template changes %v", summary(cs))
	}
	l.change("f", two, "Max", "4")
	l.want(l.tend(before), "UPDATE_COMPLETE")
	for _, e := range l.events("f")[:6] {
		if strings.Contains(e, "Group2") {
			t.Errorf("another change touches what was not reached: %s", e)
		}
	}
	l.want(l.remove("f"), "DELETE_COMPLETE")
}

func TestCancelAndContinue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.begin("f", fleet, "Pause", "PT3S")
	l.want(l.tend(nil), "CREATE_COMPLETE")
	_, err := l.cfn.CancelUpdateStack(l.ctx(), &cfn.CancelUpdateStackInput{StackName: aws.String("f")})
	if !strings.Contains(refused(err), "CancelUpdateStack cannot be called from current stack status") {
		t.Errorf("nothing to cancel: %s", refused(err))
	}
	l.change("f", fleet, "Type", "t3.large", "Pause", "PT30S")
	_, err = l.cfn.UpdateStack(l.ctx(), &cfn.UpdateStackInput{StackName: aws.String("f"), TemplateBody: aws.String(fleet)})
	if !strings.Contains(refused(err), "state and can not be updated") {
		t.Errorf("two updates at once: %s", refused(err))
	}
	l.until("the update waits", func() bool {
		return slices.ContainsFunc(l.events("f"), func(e string) bool { return strings.Contains(e, "Waiting on 1 resource signal") })
	})
	must[*cfn.CancelUpdateStackOutput](l)(l.cfn.CancelUpdateStack(l.ctx(), &cfn.CancelUpdateStackInput{StackName: aws.String("f")}))
	l.until("it goes back", func() bool { return l.describe("f").StackStatus == types.StackStatusUpdateRollbackInProgress })
	l.told("f", "UPDATE_FAILED Group Resource update cancelled")
	// Nobody signals while it goes back, so that fails too.
	l.until("the way back fails", func() bool { return l.describe("f").StackStatus == types.StackStatusUpdateRollbackFailed })
	must[*cfn.ContinueUpdateRollbackOutput](l)(l.cfn.ContinueUpdateRollback(l.ctx(), &cfn.ContinueUpdateRollbackInput{StackName: aws.String("f"), ResourcesToSkip: []string{"Group"}}))
	l.want(l.settle("f"), "UPDATE_ROLLBACK_COMPLETE")
}
