// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// etcdZone is the private zone of examples/etcd-dns.yaml, with the name of the tests' cluster.
const etcdZone = clusterName + ".internal"

// TestDiscoveryByDNS creates examples/etcd-dns.yaml, whose members of etcd find each other by the records that a Lambda function
// keeps. A machine is lost, and the records and the members follow. EventBridge tells the function at first, then SNS alone.
func TestDiscoveryByDNS(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", func(e *environment) {
			e.runSlipway("state", "init", "--yes")
			e.createExample("etcd-dns")
			e.runSlipway("apply", clusterName, "--yes")
			e.waitHealthy(10 * time.Minute)
			e.exportKubeconfig()
		}},
		{"data is written", writeData},
		{"the records are those of the machines", checkRecords},
		{"plan shows nothing", checkEmptyPlan},
		{"a machine is lost", loseMachineWithRecord},
		{"SNS instead of EventBridge", triggerBySNS},
		{"plan shows nothing", checkEmptyPlan},
		{"a machine is lost", loseMachineWithRecord},
		{"delete leaves nothing", deleteWithRecords},
	})
}

// triggerBySNS changes the manifest: notifications to a topic trigger the function, and no rule with a pattern.
func triggerBySNS(e *environment) {
	e.editManifest("    discoveryEvents:\n    - EventBridge\n", "    discoveryEvents:\n    - SNS\n")
	e.runSlipway("apply", clusterName, "--yes")
	rule, err := eventbridge.NewFromConfig(e.aws).DescribeRule(e.t.Context(), &eventbridge.DescribeRuleInput{Name: aws.String(functionName)})
	if err != nil || aws.ToString(rule.EventPattern) != "" {
		e.t.Fatalf("the rule has a pattern: %+v, %v", rule, err)
	}
}

// functionName is the name of the function that keeps the records, of its rule and of its topic.
const functionName = "slipway-dns-" + clusterName

// machineAddresses returns the private addresses of the control plane's machines by the names of their members.
func (e *environment) machineAddresses() map[string]string {
	e.t.Helper()
	machines := e.listMachines("control-plane")
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}}},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if slot := machines[*i.InstanceId]; slot != "" {
				found["etcd-"+slot+"."+etcdZone+"."] = aws.ToString(i.PrivateIpAddress)
			}
		}
	}
	return found
}

// readRecords returns the members that both SRV records list, with their addresses, as the resolver of the VPC answers a machine.
func (e *environment) readRecords(machine string) (map[string]string, error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	resolver := e.newMachineResolver(machine)
	names := map[string][]string{}
	for service, port := range map[string]uint16{"etcd-server-ssl": 2380, "etcd-client-ssl": 2379} {
		_, list, err := resolver.LookupSRV(ctx, service, "tcp", etcdZone+".")
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			if r.Port != port {
				return nil, fmt.Errorf("record %s of %s has port %d", r.Target, service, r.Port)
			}
			names[service] = append(names[service], r.Target)
		}
		slices.Sort(names[service])
	}
	if !slices.Equal(names["etcd-server-ssl"], names["etcd-client-ssl"]) {
		return nil, fmt.Errorf("the records differ: %v", names)
	}
	found := map[string]string{}
	for _, name := range names["etcd-server-ssl"] {
		addresses, err := resolver.LookupHost(ctx, name)
		if err != nil {
			return nil, err
		}
		found[name] = strings.Join(addresses, " ")
	}
	return found, nil
}

// waitForRecords waits until the records have the addresses of the machines, asked from one of them, and so has the file hosts of
// each machine.
func (e *environment) waitForRecords(limit time.Duration) {
	e.t.Helper()
	e.waitUntil("the records are those of the machines", limit, func() error {
		want := e.machineAddresses()
		machines := slices.Sorted(maps.Keys(e.listMachines("control-plane")))
		if len(want) != 3 || len(machines) != 3 {
			return fmt.Errorf("machines: %v", want)
		}
		have, err := e.readRecords(machines[0])
		if err != nil {
			return err
		}
		if !maps.Equal(have, want) {
			return fmt.Errorf("the records are %v, the machines %v", have, want)
		}
		for _, id := range machines {
			if err := e.checkHosts(id, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkHosts checks that the agent of a machine has written the addresses of all members.
func (e *environment) checkHosts(machine string, want map[string]string) error {
	hosts, err := e.runInMachine(machine, "cat /etc/hosts")
	if err != nil {
		return err
	}
	for name, address := range want {
		name = strings.TrimSuffix(name, ".")
		if !slices.ContainsFunc(strings.Split(hosts, "\n"), func(line string) bool {
			fields := strings.Fields(line)
			return len(fields) > 1 && fields[0] == address && slices.Contains(fields[1:], name)
		}) {
			return fmt.Errorf("/etc/hosts of %s has not %s for %s:\n%s", machine, address, name, hosts)
		}
	}
	return nil
}

func checkRecords(e *environment) {
	e.waitForRecords(time.Minute)
	e.t.Logf("records: %v", e.machineAddresses())
	e.waitForMembers()
}

// loseMachineWithRecord terminates a machine of the control plane. The next one of its slot has another address, which the function
// writes without being asked, and the member of the slot works again.
func loseMachineWithRecord(e *environment) {
	before := e.machineAddresses()
	machines := e.listMachines("control-plane")
	victim := slices.Sorted(maps.Keys(machines))[0]
	slot := machines[victim]
	start := time.Now()
	e.terminate(victim)
	e.waitUntil("another machine has the slot", 3*time.Minute, func() error {
		if at := e.listVolumes()[slot][1]; at == "" || at == victim {
			return fmt.Errorf("the volume of slot %s is attached to %q", slot, at)
		}
		return nil
	})
	replaced := time.Now()
	e.waitForRecords(2 * time.Minute)
	e.t.Logf("COUNT discovery by DNS: all records and files are right %s after the next machine had the volume, %s after the loss",
		time.Since(replaced).Round(time.Second), time.Since(start).Round(time.Second))
	e.waitHealthy(5 * time.Minute)
	e.waitForMembers()
	checkData(e)
	e.t.Logf("records before: %v, after: %v", before, e.machineAddresses())
	if out := e.runProgram(e.slipway, "validate", "cluster", clusterName).out; strings.Contains(out, "are not up to date") {
		e.t.Errorf("validate reports old records:\n%s", out)
	}
}

// deleteWithRecords deletes the cluster, with its records, their zone, the function and its topic.
func deleteWithRecords(e *environment) {
	if left := e.listDiscovery(); len(left) != 5 {
		e.t.Errorf("before the deletion there are %v", left)
	}
	deleteCluster(e)
	if left := e.listDiscovery(); len(left) > 0 {
		e.t.Errorf("left behind: %v", left)
	}
}

// listDiscovery returns what exists of the zone, the function, its rule, its topic and its log group.
func (e *environment) listDiscovery() []string {
	e.t.Helper()
	ctx := e.t.Context()
	name := functionName
	var found []string
	var failed []error
	zones, err := route53.NewFromConfig(e.aws).ListHostedZones(ctx, &route53.ListHostedZonesInput{})
	failed = append(failed, err)
	if err == nil {
		for _, z := range zones.HostedZones {
			if *z.Name == etcdZone+"." {
				found = append(found, "zone "+*z.Id)
			}
		}
	}
	functions, err := lambda.NewFromConfig(e.aws).ListFunctions(ctx, &lambda.ListFunctionsInput{})
	failed = append(failed, err)
	if err == nil {
		for _, f := range functions.Functions {
			found = append(found, "function "+*f.FunctionName)
		}
	}
	rules, err := eventbridge.NewFromConfig(e.aws).ListRules(ctx, &eventbridge.ListRulesInput{NamePrefix: &name})
	failed = append(failed, err)
	if err == nil {
		for _, r := range rules.Rules {
			found = append(found, "rule "+*r.Name)
		}
	}
	who, err := sts.NewFromConfig(e.aws).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	topic := "arn:aws:sns:" + e.aws.Region + ":" + aws.ToString(who.Account) + ":" + name
	_, err = sns.NewFromConfig(e.aws).GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &topic})
	var missing *snstypes.NotFoundException
	switch {
	case err == nil:
		found = append(found, "topic "+topic)
	case !errors.As(err, &missing):
		failed = append(failed, err)
	}
	groups, err := cloudwatchlogs.NewFromConfig(e.aws).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{})
	failed = append(failed, err)
	if err == nil {
		for _, g := range groups.LogGroups {
			found = append(found, "log group "+*g.LogGroupName)
		}
	}
	if err := errors.Join(failed...); err != nil {
		e.t.Fatal(err)
	}
	return found
}
