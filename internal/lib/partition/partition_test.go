// SPDX-License-Identifier: Apache-2.0

package partition_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// TestPartitionsAreTheSDKs compares the table with the file of the SDK's module, which the SDK compiles in.
func TestPartitionsAreTheSDKs(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "internal/endpoints/awsrulesfn/partitions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Partitions []struct {
			ID          string
			RegionRegex string
			Outputs     struct{ DNSSuffix string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var want []partition.Partition
	for _, p := range file.Partitions {
		want = append(want, partition.Partition{Name: p.ID, DNSSuffix: p.Outputs.DNSSuffix, Regions: p.RegionRegex})
	}
	if diff := cmp.Diff(want, partition.All()); diff != "" {
		t.Errorf("the SDK's partitions differ (-SDK +table):\n%s", diff)
	}
}

// TestEndpoints: the SDK resolves the same endpoints, also of regions that no table lists.
func TestEndpoints(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "aws", "cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov", "eusc-de-east-1": "aws-eusc",
		"us-isob-west-1": "aws-iso-b", "ap-southeast-99": "aws", "cn-south-7": "aws-cn", "moon-base-1": "aws",
	} {
		p := partition.OfRegion(region)
		if p.Name != want || partition.Named(want).DNSSuffix != p.DNSSuffix {
			t.Errorf("%s is in %+v, want %s", region, p, want)
		}
		got, err := sts.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), sts.EndpointParameters{Region: aws.String(region)})
		if err != nil || got.URI.Host != "sts."+region+"."+p.DNSSuffix {
			t.Errorf("the SDK's endpoint in %s is %s, %v; the suffix is %s", region, got.URI.Host, err, p.DNSSuffix)
		}
		got, err = ec2.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(), ec2.EndpointParameters{Region: aws.String(region)})
		if err != nil || got.URI.Host != "ec2."+region+"."+p.DNSSuffix {
			t.Errorf("the SDK's endpoint in %s is %s, %v; the suffix is %s", region, got.URI.Host, err, p.DNSSuffix)
		}
	}
	if got := partition.Named("aws-new"); got.Name != "aws-new" || got.DNSSuffix != "amazonaws.com" {
		t.Errorf("an unknown partition is %+v", got)
	}
	for want, in := range map[string][2]string{
		"com.amazonaws.us-gov-west-1.ec2":               {"us-gov-west-1", "ec2"},
		"cn.com.amazonaws.cn-north-1.ec2":               {"cn-north-1", "ec2"},
		"cn.com.amazonaws.cn-north-1.sts":               {"cn-north-1", "sts"},
		"com.amazonaws.cn-north-1.s3":                   {"cn-north-1", "s3"},
		"com.amazonaws.cn-north-1.elasticloadbalancing": {"cn-north-1", "elasticloadbalancing"},
		"gov.sgov.sc2s.us-isob-east-1.autoscaling":      {"us-isob-east-1", "autoscaling"},
		"com.amazonaws.us-isob-west-1.autoscaling":      {"us-isob-west-1", "autoscaling"},
		"com.amazonaws.us-iso-east-1.sts":               {"us-iso-east-1", "sts"},
		"eu.amazonaws.eusc-de-east-1.ecr.api":           {"eusc-de-east-1", "ecr.api"},
		"com.amazonaws.ap-southeast-99.ecr.dkr":         {"ap-southeast-99", "ecr.dkr"},
	} {
		if got := partition.EndpointService(in[0], in[1]); got != want {
			t.Errorf("the endpoint of %s in %s is %s, want %s", in[1], in[0], got, want)
		}
	}
}
