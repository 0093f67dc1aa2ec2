// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// domainName is the domain name of DHCP options, which the names of machines in EC2 do not have.
const domainName = "corp.example"

// createDomainVPC creates a VPC with an internet gateway and with DHCP options that have a domain name, as an
// organization has them.
func (e *environment) createDomainVPC(cidr string) (vpc, gateway string) {
	e.t.Helper()
	ctx := e.t.Context()
	api := ec2.NewFromConfig(e.aws)
	made, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &cidr})
	if err != nil {
		e.t.Fatal(err)
	}
	vpc = *made.Vpc.VpcId
	if err := ec2.NewVpcExistsWaiter(api).Wait(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{vpc}}, time.Minute); err != nil {
		e.t.Fatal(err)
	}
	if err := ec2.NewVpcAvailableWaiter(api).Wait(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{vpc}}, time.Minute); err != nil {
		e.t.Fatal(err)
	}
	if _, err := api.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{
		VpcId: &vpc, EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: aws.Bool(true)},
	}); err != nil {
		e.t.Fatal(err)
	}
	attached, err := api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	gateway = *attached.InternetGateway.InternetGatewayId
	e.waitUntil("the internet gateway is seen and attached", time.Minute, func() error {
		_, err := api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{VpcId: &vpc, InternetGatewayId: &gateway})
		return err
	})
	e.giveDomainName(vpc)
	return vpc, gateway
}

// giveDomainName gives a VPC DHCP options with a domain name.
func (e *environment) giveDomainName(vpc string) {
	e.t.Helper()
	ctx := e.t.Context()
	api := ec2.NewFromConfig(e.aws)
	options, err := api.CreateDhcpOptions(ctx, &ec2.CreateDhcpOptionsInput{DhcpConfigurations: []ec2types.NewDhcpConfiguration{
		{Key: aws.String("domain-name"), Values: []string{domainName}},
		{Key: aws.String("domain-name-servers"), Values: []string{"AmazonProvidedDNS"}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	e.waitUntil("the DHCP options are seen and associated", time.Minute, func() error {
		_, err := api.AssociateDhcpOptions(ctx, &ec2.AssociateDhcpOptionsInput{VpcId: &vpc, DhcpOptionsId: options.DhcpOptions.DhcpOptionsId})
		return err
	})
}

// setDomainName gives the cluster's VPC a domain name. The machines of later steps have a local-hostname with it, and their
// nodes do not.
func setDomainName(e *environment) {
	vpcs, err := ec2.NewFromConfig(e.aws).DescribeVpcs(e.t.Context(), &ec2.DescribeVpcsInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}}},
	})
	if err != nil || len(vpcs.Vpcs) != 1 {
		e.t.Fatalf("%v: %v", vpcs, err)
	}
	e.giveDomainName(*vpcs.Vpcs[0].VpcId)
}

// checkDomainName checks that a machine has the domain name and that its node has the machine's name in EC2.
func (e *environment) checkDomainName(id string) {
	e.t.Helper()
	if got := e.mustRunInMachine(id, "cat /etc/resolv.conf"); !strings.Contains(got, "search "+domainName) {
		e.t.Errorf("%s has the resolver\n%s", id, got)
	}
	checkNodeMetadata(e)
}
