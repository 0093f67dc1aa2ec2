// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// addConditionalKinds creates a key pair and a VPC endpoint with the cluster's tag, which a plan reads only
// if some exist.
func (b *bench) addConditionalKinds(cluster string) {
	b.Helper()
	api := ec2.NewFromConfig(b.region.AWSConfig())
	tagged := func(kind types.ResourceType) []types.TagSpecification {
		return []types.TagSpecification{{ResourceType: kind, Tags: []types.Tag{{Key: sdk.String(awskind.TagCluster), Value: &cluster}}}}
	}
	v, err := api.CreateVpc(b.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.201.0.0/16")})
	b.check(v, err)
	_, err = api.CreateVpcEndpoint(b.Context(), &ec2.CreateVpcEndpointInput{
		VpcId: v.Vpc.VpcId, ServiceName: sdk.String("com.amazonaws." + regiontest.RegionName + ".s3"), TagSpecifications: tagged(types.ResourceTypeVpcEndpoint),
	})
	b.check(nil, err)
	peer, err := api.CreateVpc(b.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.202.0.0/16")})
	b.check(peer, err)
	p, err := api.CreateVpcPeeringConnection(b.Context(), &ec2.CreateVpcPeeringConnectionInput{
		VpcId: v.Vpc.VpcId, PeerVpcId: peer.Vpc.VpcId, TagSpecifications: tagged(types.ResourceTypeVpcPeeringConnection),
	})
	b.check(p, err)
	remove := &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: p.VpcPeeringConnection.VpcPeeringConnectionId}
	for range 100 { // a request that is still initiating cannot be deleted
		if _, err = api.DeleteVpcPeeringConnection(b.Context(), remove); err == nil {
			break
		}

		time.Sleep(100 * time.Millisecond)
	}
	b.check(nil, err) // it is listed for hours
	_, err = api.ImportKeyPair(b.Context(), &ec2.ImportKeyPairInput{
		KeyName: sdk.String("other"), PublicKeyMaterial: []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ1dCBhIHRlc3Qga2V5LCBvZiBub2JvZHkgYXQgYWxs"),
		TagSpecifications: tagged(types.ResourceTypeKeyPair),
	})
	b.check(nil, err)
}
