// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// The tests of this file compare the region with LocalStack's recordings of AWS.

// TestMembersOfStacks: a stack has no empty lists but those of its tags and topics. A deleted stack keeps its parameters
// and outputs, and has neither its change set nor its protection.
func TestMembersOfStacks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	plain := l.create("plain", `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Type":"String","Value":"v"}}}}`)
	if plain.Parameters != nil || plain.Outputs != nil || plain.Capabilities != nil || plain.Tags == nil || plain.NotificationARNs == nil ||
		plain.EnableTerminationProtection == nil || plain.DeletionTime != nil {
		t.Errorf("a stack without parameters: %+v", plain)
	}

	const body = `{"Parameters":{"V":{"Type":"String","Default":"v"}},"Outputs":{"O":{"Value":{"Ref":"V"}}},
		"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Type":"String","Value":{"Ref":"V"}}}}}`
	l.propose(&cfn.CreateChangeSetInput{
		StackName: aws.String("full"), ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(body),
	})
	must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{
		StackName: aws.String("full"), ChangeSetName: aws.String("c"),
	}))

	full := l.settle("full")
	if full.ChangeSetId == nil || full.LastUpdatedTime == nil || len(full.Parameters) != 1 || len(full.Outputs) != 1 {
		t.Errorf("a stack of a change set: %+v", full)
	}

	gone := l.remove("full")
	if gone.ChangeSetId != nil || gone.EnableTerminationProtection != nil || gone.DeletionTime == nil || gone.LastUpdatedTime == nil ||
		len(gone.Parameters) != 1 || len(gone.Outputs) != 1 || gone.StackStatusReason != nil {
		t.Errorf("a deleted stack: %+v", gone)
	}

	list := must[*cfn.ListStacksOutput](l)(l.cfn.ListStacks(l.ctx(), &cfn.ListStacksInput{
		StackStatusFilter: []types.StackStatus{types.StackStatusDeleteComplete},
	}))
	if len(list.StackSummaries) != 1 || list.StackSummaries[0].DeletionTime == nil {
		t.Errorf("ListStacks: %+v", list.StackSummaries)
	}

	l.begin("bad", `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Type":"String","Value":{"Fn::ImportValue":"none"}}}}}`)
	bad := l.settle("bad")
	if bad.StackStatus != types.StackStatusRollbackComplete || bad.DeletionTime == nil || bad.EnableTerminationProtection == nil ||
		bad.StackStatusReason != nil {
		t.Errorf("a stack that was rolled back: %+v", bad)
	}
}

// TestTextsAboutMissingStacks: each operation has words of its own.
func TestTextsAboutMissingStacks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	name := aws.String("none")
	_, events := l.cfn.DescribeStackEvents(l.ctx(), &cfn.DescribeStackEventsInput{StackName: name})
	_, changeSet := l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{StackName: name, ChangeSetName: aws.String("c")})
	_, deletion := l.cfn.DeleteChangeSet(l.ctx(), &cfn.DeleteChangeSetInput{StackName: name, ChangeSetName: aws.String("c")})
	_, changeSets := l.cfn.ListChangeSets(l.ctx(), &cfn.ListChangeSetsInput{StackName: name})
	_, resource := l.cfn.DescribeStackResource(l.ctx(), &cfn.DescribeStackResourceInput{StackName: name, LogicalResourceId: aws.String("R")})
	_, stack := l.cfn.DescribeStacks(l.ctx(), &cfn.DescribeStacksInput{StackName: name})
	_, malformed := l.cfn.ValidateTemplate(l.ctx(), &cfn.ValidateTemplateInput{TemplateBody: aws.String(`{"this is invalid JSON"="bobbins"}`)})

	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"events":     {events, "Stack [none] does not exist"},
		"change set": {changeSet, "Stack [none] does not exist"},
		"deletion":   {deletion, "Stack [none] does not exist"},
		"list":       {changeSets, "Stack [none] does not exist"},
		"resource":   {resource, "Stack 'none' does not exist"},
		"stack":      {stack, "Stack with id none does not exist"},
		"JSON":       {malformed, "Template format error: JSON not well-formed. (line 1, column 25)"},
	} {
		if got := refused(c.err); got != "ValidationError: "+c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// TestImportsFailTheExecution: a change set may import what nobody exports yet; its execution fails then.
func TestImportsFailTheExecution(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const body = `{"Resources":{"MyFoo":{"Type":"AWS::SSM::Parameter","Properties":{"Type":"String","Value":{"Fn::ImportValue":"later"}}}}}`
	in := func(stack string) *cfn.CreateChangeSetInput {
		return &cfn.CreateChangeSetInput{
			StackName: &stack, ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(body),
		}
	}
	execute := func(stack string) types.Stack {
		t.Helper()
		must[*cfn.ExecuteChangeSetOutput](l)(l.cfn.ExecuteChangeSet(l.ctx(), &cfn.ExecuteChangeSetInput{StackName: &stack, ChangeSetName: aws.String("c")}))

		return l.settle(stack)
	}

	proposed := l.propose(in("one"))
	if proposed.Status != types.ChangeSetStatusCreateComplete || proposed.StatusReason != nil || len(proposed.Changes) != 1 {
		t.Fatalf("%+v", proposed)
	}

	values := must[*cfn.DescribeChangeSetOutput](l)(l.cfn.DescribeChangeSet(l.ctx(), &cfn.DescribeChangeSetInput{
		StackName: aws.String("one"), ChangeSetName: aws.String("c"), IncludePropertyValues: aws.Bool(true),
	}))
	if !strings.Contains(aws.ToString(values.StatusReason), "ChangeSet creation failed for resource [MyFoo] because: No export named later") ||
		!strings.Contains(aws.ToString(values.Changes[0].ResourceChange.AfterContext), "{{changeSet:KNOWN_AFTER_APPLY}}") {
		t.Errorf("with values: %s, %+v", aws.ToString(values.StatusReason), values.Changes)
	}

	if st := execute("one"); st.StackStatus != types.StackStatusRollbackComplete || st.ChangeSetId != nil {
		t.Errorf("without the export: %+v", st)
	}

	l.told("one", "CREATE_FAILED MyFoo No export named later found")
	l.propose(in("two"))
	l.create("exporter", `{"Resources":{"P":{"Type":"AWS::SSM::Parameter","Properties":{"Type":"String","Value":"v"}}},
		"Outputs":{"O":{"Value":"v","Export":{"Name":"later"}}}}`)
	l.want(execute("two"), "CREATE_COMPLETE")
}

// TestKeyPairsNeedTheirKey: the region creates no private keys, and says so.
func TestKeyPairsNeedTheirKey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const key = `"PublicKeyMaterial":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKSXE3LTxJr6oGtq0wtclXRci+Q0MSfMRACivmyfyWGZ"`
	for name, c := range map[string]struct{ properties, want string }{
		"without": {`"KeyName":"k"`, "this region creates no private keys"},
		"format":  {`"KeyName":"k","KeyFormat":"pem",` + key, "KeyFormat is not implemented"},
		"type":    {`"KeyName":"k","KeyType":"rsa",` + key, "KeyType is not implemented"},
	} {
		l.begin(name, `{"Resources":{"K":{"Type":"AWS::EC2::KeyPair","Properties":{`+c.properties+`}}}}`)
		l.want(l.settle(name), "ROLLBACK_COMPLETE")
		l.told(name, "CREATE_FAILED K "+c.want)
	}
}
