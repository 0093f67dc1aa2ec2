// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

// addressBook is an EC2 with the addresses that match the filters.
type addressBook struct {
	EC2API
	list  []types.Address
	asked []string
	taken []string
}

func (b *addressBook) DescribeAddresses(_ context.Context, in *ec2.DescribeAddressesInput, _ ...func(*ec2.Options)) (*ec2.DescribeAddressesOutput, error) {
	for _, f := range in.Filters {
		b.asked = append(b.asked, aws.ToString(f.Name)+"="+strings.Join(f.Values, ","))
	}
	return &ec2.DescribeAddressesOutput{Addresses: b.list}, nil
}

func (b *addressBook) AssociateAddress(_ context.Context, in *ec2.AssociateAddressInput, _ ...func(*ec2.Options)) (*ec2.AssociateAddressOutput, error) {
	if !aws.ToBool(in.AllowReassociation) {
		return nil, errors.New("Resource.AlreadyAssociated")
	}
	b.taken = append(b.taken, *in.AllocationId+" "+*in.InstanceId)
	return &ec2.AssociateAddressOutput{}, nil
}

// TestTakeAddress checks that a machine associates its slot's address if it is free or associated
// with a predecessor, does nothing if it already has it, and takes none if several match.
func TestTakeAddress(t *testing.T) {
	at := func(instance string) types.Address {
		return types.Address{AllocationId: aws.String("eipalloc-1"), PublicIp: aws.String("192.0.2.1"), InstanceId: aws.String(instance)}
	}
	for name, c := range map[string]struct {
		list  []types.Address
		taken []string
		waits bool
	}{
		"free":          {[]types.Address{at("")}, []string{"eipalloc-1 i-me"}, false},
		"predecessor's": {[]types.Address{at("i-old")}, []string{"eipalloc-1 i-me"}, false},
		"mine":          {[]types.Address{at("i-me")}, nil, false},
		"none":          {nil, nil, true},
		"two":           {[]types.Address{at(""), at("")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &addressBook{list: c.list}
			err := EC2Client{EC2: b, Cluster: "demo"}.AssociateElasticIP(t.Context(), "a", "i-me")
			if _, waits := errors.AsType[notReadyError](err); waits != c.waits || err != nil && !waits {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(c.taken, b.taken); diff != "" {
				t.Errorf("taken: %s", diff)
			}
			if diff := cmp.Diff([]string{"tag:slipway.dev/cluster=demo", "tag:slipway.dev/etcd-slot=a"}, b.asked); diff != "" {
				t.Errorf("asked: %s", diff)
			}
		})
	}
}
