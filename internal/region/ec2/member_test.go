// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestInterfacesAreCreatedOnce: a request with the client token of an earlier one creates nothing.
func TestInterfacesAreCreatedOnce(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	create := func(description string) (string, error) {
		out, err := r.CreateNetworkInterface(ctx, &client.CreateNetworkInterfaceInput{
			SubnetId: &subnet, ClientToken: aws.String("once"), Description: &description,
		})
		if err != nil {
			return "", err
		}
		return *out.NetworkInterface.NetworkInterfaceId, nil
	}
	first, err := create("a")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := create("a"); err != nil || again != first {
		t.Errorf("the same request again: %q, %v, want %s", again, err, first)
	}
	if _, err := create("b"); code(err) != "IdempotentParameterMismatch" {
		t.Errorf("the token with another request: %v", err)
	}
}

// TestRulesNameGroupsOfTheirAccount: a rule that names the group of another account is refused.
func TestRulesNameGroupsOfTheirAccount(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	vpc, _ := r.createVPCWithSubnet(t)
	a, b := r.group(t, vpc, "a"), r.group(t, vpc, "b")
	for owner, want := range map[string]string{"000000000000": "", "999999999999": "InvalidGroup.NotFound"} {
		_, err := r.AuthorizeSecurityGroupIngress(ctx, &client.AuthorizeSecurityGroupIngressInput{
			GroupId: &a,
			IpPermissions: port(443, func(p *types.IpPermission) {
				p.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: &b, UserId: &owner}}
			}),
		})
		if code(err) != want {
			t.Errorf("owner %s: %v, want %q", owner, err, want)
		}
	}
}

// TestInstancesHaveOneNetworkCard: another card than the first is refused.
func TestInstancesHaveOneNetworkCard(t *testing.T) {
	r, ctx := newRegion(t), t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	for card, want := range map[int32]string{0: "", 1: "InvalidParameterValue"} {
		_, err := r.RunInstances(ctx, &client.RunInstancesInput{
			ImageId: aws.String(image), InstanceType: "m5.large", MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{DeviceIndex: aws.Int32(0), NetworkCardIndex: &card, SubnetId: &subnet}},
		})
		if code(err) != want {
			t.Errorf("card %d: %v, want %q", card, err, want)
		}
	}
}
