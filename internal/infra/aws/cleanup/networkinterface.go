// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
)

// attachedInstance returns the id of the instance that an interface is attached to; empty if it is
// not.
func attachedInstance(n ec2types.NetworkInterface) string {
	if n.Attachment == nil {
		return ""
	}

	return aws.ToString(n.Attachment.InstanceId)
}

// newInterfaceBlocker returns a network interface with the owner in its tags or its description.
func newInterfaceBlocker(n ec2types.NetworkInterface) Blocker {
	tags := driver.FromEC2Tags(n.TagSet)
	b := Blocker{
		ID:    aws.ToString(n.NetworkInterfaceId),
		Kind:  "network interface" + formatNameTag(tags),
		Owner: creatorFromTags(tags),
	}

	description := aws.ToString(n.Description)

	switch {
	case b.Owner != "":
	case attachedInstance(n) != "":
		b.Owner = attachedInstance(n)
	case strings.HasPrefix(description, "ELB ") && !strings.Contains(description, "/"):
		b.Owner = "classic load balancer " + description[len("ELB "):]
	case description != "":
		b.Kind += " (" + description + ")"
	case aws.ToBool(n.RequesterManaged):
		b.Owner = "AWS service " + aws.ToString(n.RequesterId)
	}

	return b
}
