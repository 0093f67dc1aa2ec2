// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// view is what the AWS CLI shows of an account: each thing once, with what AWS made up replaced by what it belongs to.
// Two accounts that hold the same cluster have equal views.
type view map[string]any

// listings are the commands that show all that a cluster is made of, with the key that holds the list.
func listings() [][2]string {
	return [][2]string{
		{"ec2 describe-vpcs", "Vpcs"},
		{"ec2 describe-subnets", "Subnets"},
		{"ec2 describe-internet-gateways", "InternetGateways"},
		{"ec2 describe-nat-gateways --filter Name=state,Values=pending,available", "NatGateways"},
		{"ec2 describe-addresses", "Addresses"},
		{"ec2 describe-route-tables", "RouteTables"},
		{"ec2 describe-security-groups", "SecurityGroups"},
		{"ec2 describe-security-group-rules", "SecurityGroupRules"},
		{"ec2 describe-volumes", "Volumes"},
		{"ec2 describe-launch-templates", "LaunchTemplates"},
		{"ec2 describe-instances --filters Name=instance-state-name,Values=pending,running", "Reservations"},
		{"autoscaling describe-auto-scaling-groups", "AutoScalingGroups"},
		{"elbv2 describe-load-balancers", "LoadBalancers"},
		{"elbv2 describe-target-groups", "TargetGroups"},
		{"iam list-roles", "Roles"},
		{"iam list-instance-profiles", "InstanceProfiles"},
		{"kms list-aliases", "Aliases"},
	}
}

// details are commands that are asked for each thing of a listing: the listing, the field with its name, the command.
func details() [][3]string {
	return [][3]string{
		{"VpcId", "ec2 describe-vpc-attribute --attribute enableDnsHostnames --vpc-id", "Vpcs"},
		{"VpcId", "ec2 describe-vpc-attribute --attribute enableDnsSupport --vpc-id", "Vpcs"},
		{"LaunchTemplateId", "ec2 describe-launch-template-versions --versions $Latest --launch-template-id", "LaunchTemplates"},
		{"LoadBalancerArn", "elbv2 describe-listeners --load-balancer-arn", "LoadBalancers"},
		{"LoadBalancerArn", "elbv2 describe-load-balancer-attributes --load-balancer-arn", "LoadBalancers"},
		{"LoadBalancerArn", "elbv2 describe-tags --resource-arns", "LoadBalancers"},
		{"TargetGroupArn", "elbv2 describe-target-group-attributes --target-group-arn", "TargetGroups"},
		{"TargetGroupArn", "elbv2 describe-tags --resource-arns", "TargetGroups"},
		{"RoleName", "iam list-role-policies --role-name", "Roles"},
		{"RoleName", "iam list-attached-role-policies --role-name", "Roles"},
		{"RoleName", "iam list-role-tags --role-name", "Roles"},
		{"TargetKeyId", "kms describe-key --key-id", "Aliases"},
		{"TargetKeyId", "kms get-key-rotation-status --key-id", "Aliases"},
		{"TargetKeyId", "kms get-key-policy --policy-name default --key-id", "Aliases"},
		{"TargetKeyId", "kms list-resource-tags --key-id", "Aliases"},
	}
}

// look asks for everything.
func look(t *testing.T, r regiontest.Region) view {
	t.Helper()
	var commands [][]string
	for _, l := range listings() {
		commands = append(commands, strings.Fields(l[0]))
	}
	lists := map[string][]any{}
	out := view{}
	for i, answer := range awscli(t, r, commands) {
		key := listings()[i][1]
		lists[key], _ = answer.(map[string]any)[key].([]any)
		out[listings()[i][0]] = lists[key]
	}
	commands = nil
	for _, d := range details() {
		for _, e := range lists[d[2]] {
			if name, ok := e.(map[string]any)[d[0]].(string); ok {
				commands = append(commands, append(strings.Fields(d[1]), name))
			}
		}
	}
	commands = append(commands, policies(t, r, lists["Roles"])...)
	for i, answer := range awscli(t, r, commands) {
		out[strings.Join(commands[i], " ")] = answer
	}
	return out
}

// policies are the commands that show the inline policies of roles.
func policies(t *testing.T, r regiontest.Region, roles []any) [][]string {
	t.Helper()
	var ask, out [][]string
	for _, e := range roles {
		name, _ := e.(map[string]any)["RoleName"].(string)
		ask = append(ask, []string{"iam", "list-role-policies", "--role-name", name})
	}
	for i, answer := range awscli(t, r, ask) {
		names, _ := answer.(map[string]any)["PolicyNames"].([]any)
		for _, p := range names {
			out = append(out, []string{"iam", "get-role-policy", "--role-name", ask[i][3], "--policy-name", fmt.Sprint(p)})
		}
	}
	return out
}

// awscli runs commands of the AWS CLI against a region; without the CLI the test is skipped aloud.
func awscli(t *testing.T, r regiontest.Region, commands [][]string) []any {
	t.Helper()
	python := tool(t, "python3")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import awscli").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no judge here: python3 has no AWS CLI: %s", out)
	}
	in, err := json.Marshal(commands)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "runaws.py")
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = append(cmd.Environ(), "AWS_DEFAULT_REGION="+regiontest.Name)
	for k, v := range r.Env() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var answers []any
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(commands) {
		t.Fatalf("%d answers to %d commands: %v", len(answers), len(commands), err)
	}
	return answers
}

