// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// cmdFunction is the command "function": slipway finds the program of the function for DNS records from now on.
func cmdFunction(ts *testscript.TestScript, _ bool, _ []string) {
	path, err := dnsfunction.Build(ts.MkAbs("."))
	ts.Check(err)
	ts.Setenv("SLIPWAY_DNS_BINARY", path)
}

// cmdRecords is the command "records CLUSTER COUNT": the zone of a cluster lists so many members of etcd, within a minute.
func cmdRecords(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	cfg := configOf(ts)
	have := -1
	for deadline := time.Now().Add(time.Minute); have != want && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		have, err = countMembers(cfg, args[0])
		ts.Check(err)
	}
	if have != want {
		ts.Fatalf("zone %s.internal lists %d members, want %d", args[0], have, want)
	}
}

// countMembers returns the number of members that the record for peers lists; 0 without the zone or the record.
func countMembers(cfg aws.Config, cluster string) (int, error) {
	ctx := context.Background()
	api := route53.NewFromConfig(cfg)
	zones, err := api.ListHostedZones(ctx, &route53.ListHostedZonesInput{})
	if err != nil {
		return 0, err
	}
	for _, z := range zones.HostedZones {
		if *z.Name != cluster+".internal." {
			continue
		}
		out, err := api.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{HostedZoneId: z.Id})
		if err != nil {
			return 0, err
		}
		for _, r := range out.ResourceRecordSets {
			if *r.Name == "_etcd-server-ssl._tcp."+cluster+".internal." {
				return len(r.ResourceRecords), nil
			}
		}
	}
	return 0, nil
}

// cmdUnfunctioned is the command "unfunctioned": the account has no function, rule, log group and zone, and no topic of demo or stack.
func cmdUnfunctioned(ts *testscript.TestScript, _ bool, _ []string) {
	ctx := context.Background()
	cfg := configOf(ts)
	functions, err := lambda.NewFromConfig(cfg).ListFunctions(ctx, &lambda.ListFunctionsInput{})
	ts.Check(err)
	rules, err := eventbridge.NewFromConfig(cfg).ListRules(ctx, &eventbridge.ListRulesInput{})
	ts.Check(err)
	groups, err := cloudwatchlogs.NewFromConfig(cfg).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{})
	ts.Check(err)
	zones, err := route53.NewFromConfig(cfg).ListHostedZones(ctx, &route53.ListHostedZonesInput{})
	ts.Check(err)
	topics, err := countTopics(ctx, cfg, "demo", "stack")
	ts.Check(err)
	if left := len(functions.Functions) + len(rules.Rules) + len(groups.LogGroups) + len(zones.HostedZones) + topics; left > 0 {
		ts.Fatalf("%s is left", fmt.Sprint(len(functions.Functions), " functions, ", len(rules.Rules), " rules, ", len(groups.LogGroups), " log groups, ", len(zones.HostedZones), " zones, ", topics, " topics"))
	}
}

// countTopics returns how many topics of the functions of clusters exist.
func countTopics(ctx context.Context, cfg aws.Config, clusters ...string) (int, error) {
	found := 0
	for _, cluster := range clusters {
		arn := "arn:aws:sns:us-east-1:" + regiontest.AccountID + ":slipway-dns-" + cluster
		_, err := sns.NewFromConfig(cfg).GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
		var missing *snstypes.NotFoundException
		switch {
		case err == nil:
			found++
		case !errors.As(err, &missing):
			return found, err
		}
	}
	return found, nil
}

// configOf returns the configuration of clients of the script's region.
func configOf(ts *testscript.TestScript) aws.Config {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	return r.AWSConfig()
}
