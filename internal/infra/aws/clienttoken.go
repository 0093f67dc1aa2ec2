// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// clientToken is the client token of one resource in this run: AWS answers a call that comes again with the same token as it
// did the first time, instead of making a second thing. Other runs have other tokens, since AWS remembers a token
// longer than what was made may live.
func (c *Cloud) clientToken(addr string) string {
	sum := sha256.Sum256([]byte(c.runID + "\x00" + c.scope.Cluster + "\x00" + addr))
	const length = 32 // of at most 64
	return hex.EncodeToString(sum[:])[:length]
}

// hasClientToken says whether a call's input has a client token: then it may be sent again.
func hasClientToken(input any) bool {
	var token *string
	switch in := input.(type) {
	case *ec2.CreateNatGatewayInput:
		token = in.ClientToken
	case *ec2.CreateVolumeInput:
		token = in.ClientToken
	case *ec2.CreateLaunchTemplateInput:
		token = in.ClientToken
	case *ec2.CreateLaunchTemplateVersionInput:
		token = in.ClientToken
	case *ec2.CreateRouteTableInput:
		token = in.ClientToken
	}

	return token != nil
}
