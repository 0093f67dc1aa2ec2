// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// accountView is an account as the AWS CLI shows it. It contains each resource once, with generated
// values replaced by the resource that they belong to. Two accounts with the same cluster have
// equal views.
type accountView map[string]any

// listCommands are the commands that list all resources of a cluster, with the key of the list in
// the output.
func listCommands() [][2]string {
	return [][2]string{
		{"ec2 describe-vpcs", "Vpcs"},
		{"ec2 describe-subnets", "Subnets"},
		{"ec2 describe-internet-gateways", "InternetGateways"},
		{"ec2 describe-nat-gateways --filter Name=state,Values=pending,available", "NatGateways"},
		{"ec2 describe-addresses", "Addresses"},
		{"ec2 describe-route-tables", "RouteTables"},
		{"ec2 describe-security-groups", "SecurityGroups"},
		{"ec2 describe-security-group-rules", "SecurityGroupRules"},
		{"ec2 describe-vpc-endpoints", "VpcEndpoints"},
		{"ec2 describe-volumes", "Volumes"},
		{"ec2 describe-launch-templates", "LaunchTemplates"},
		{"ec2 describe-instances --filters Name=instance-state-name,Values=pending,running", "Reservations"},
		{"autoscaling describe-auto-scaling-groups", "AutoScalingGroups"},
		{"elbv2 describe-load-balancers", "LoadBalancers"},
		{"elbv2 describe-target-groups", "TargetGroups"},
		{"iam list-roles", "Roles"},
		{"iam list-instance-profiles", "InstanceProfiles"},
		{"kms list-aliases", "Aliases"},
		{"ec2 describe-vpc-peering-connections", "VpcPeeringConnections"},
		{"route53 list-hosted-zones", "HostedZones"},
		{"lambda list-functions", "Functions"},
		{"events list-rules", "Rules"},
		{"logs describe-log-groups", "logGroups"},
	}
}

// detailCommands are the commands that are called for each resource of a list: the list, the field
// with the name of the resource, and the command.
func detailCommands() [][3]string {
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
		{"Name", "events list-targets-by-rule --rule", "Rules"},
		{"Id", "route53 get-hosted-zone --id", "HostedZones"},
		{"Id", "route53 list-resource-record-sets --hosted-zone-id", "HostedZones"},
		{"Id", "route53 list-tags-for-resource --resource-type hostedzone --resource-id", "HostedZones"},
	}
}

// readAccount runs all commands.
func (c awsCLI) readAccount(t *testing.T, r regiontest.Region) accountView {
	t.Helper()
	var commands [][]string
	for _, l := range listCommands() {
		commands = append(commands, strings.Fields(l[0]))
	}
	lists := map[string][]any{}
	out := accountView{}
	for i, answer := range c.runCommands(t, r, commands) {
		key := listCommands()[i][1]
		lists[key], _ = answer.(map[string]any)[key].([]any)
		out[listCommands()[i][0]] = lists[key]
	}
	commands = nil
	for _, d := range detailCommands() {
		for _, e := range lists[d[2]] {
			if name, ok := e.(map[string]any)[d[0]].(string); ok {
				commands = append(commands, append(strings.Fields(d[1]), strings.TrimPrefix(name, "/hostedzone/")))
			}
		}
	}
	commands = append(commands, c.policyCommands(t, r, lists["Roles"])...)
	for i, answer := range c.runCommands(t, r, commands) {
		out[strings.Join(commands[i], " ")] = answer
	}
	return out
}

// policyCommands are the commands that show the inline policies of roles.
func (c awsCLI) policyCommands(t *testing.T, r regiontest.Region, roles []any) [][]string {
	t.Helper()
	var ask, out [][]string
	for _, e := range roles {
		name, _ := e.(map[string]any)["RoleName"].(string)
		ask = append(ask, []string{"iam", "list-role-policies", "--role-name", name})
	}
	for i, answer := range c.runCommands(t, r, ask) {
		names, _ := answer.(map[string]any)["PolicyNames"].([]any)
		for _, p := range names {
			out = append(out, []string{"iam", "get-role-policy", "--role-name", ask[i][3], "--policy-name", fmt.Sprint(p)})
		}
	}
	return out
}

// awsCLI is the AWS CLI in a long-running process, since it starts slowly.
type awsCLI struct {
	mu      *sync.Mutex // one request at a time
	in      *json.Encoder
	out     *json.Decoder
	missing string // why the AWS CLI cannot run; empty if it can
}

// newAWSCLI starts the process.
func newAWSCLI(t *testing.T) awsCLI {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "python3", "-c", "import awscli").CombinedOutput(); err != nil {
		return awsCLI{missing: fmt.Sprintf("python3 has no AWS CLI: %v: %s", err, out)}
	}
	cmd := exec.CommandContext(context.Background(), "python3", "runaws.py") // exits when its input ends
	cmd.Env = append(cmd.Environ(), "AWS_DEFAULT_REGION="+regiontest.RegionName, "AWS_ACCESS_KEY_ID="+regiontest.AccessKey, "AWS_SECRET_ACCESS_KEY="+regiontest.SecretKey)
	in, err := cmd.StdinPipe()
	failOnError(t, err)
	out, err := cmd.StdoutPipe()
	failOnError(t, err)
	failOnError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("AWS CLI: %v", err)
		}
	})
	return awsCLI{mu: &sync.Mutex{}, in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

// skipIfMissing skips t, with the reason, on a machine without the AWS CLI.
func (c awsCLI) skipIfMissing(t *testing.T) {
	t.Helper()
	if c.missing != "" {
		t.Skip("SKIPPED: no AWS CLI on this machine: " + c.missing)
	}
}

// runCommands runs commands against a region.
func (c awsCLI) runCommands(t *testing.T, r regiontest.Region, commands [][]string) []any {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	failOnError(t, c.in.Encode(map[string]any{"endpoint": *r.AWSConfig().BaseEndpoint, "commands": commands}))
	var out struct {
		Answers []any
		Error   string
	}
	failOnError(t, c.out.Decode(&out))
	if out.Error != "" || len(out.Answers) != len(commands) {
		t.Fatalf("%d answers to %d commands: %s", len(out.Answers), len(commands), out.Error)
	}
	return out.Answers
}
