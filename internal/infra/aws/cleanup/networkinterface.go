// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
)

// attachedInstance is the instance that an interface is attached to; else "".
func attachedInstance(n ec2types.NetworkInterface) string {
	if n.Attachment == nil {
		return ""
	}

	return aws.ToString(n.Attachment.InstanceId)
}

// newInterfaceBlocker describes an interface by what it says itself.
func newInterfaceBlocker(n ec2types.NetworkInterface) Blocker {
	tags := driver.FromEC2Tags(n.TagSet)
	b := Blocker{
		ID:    aws.ToString(n.NetworkInterfaceId),
		Kind:  "network interface" + formatNameTag(tags),
		Owner: creatorFromTags(tags),
	}

	text := aws.ToString(n.Description)

	switch {
	case b.Owner != "":
	case attachedInstance(n) != "":
		b.Owner = attachedInstance(n)
	case strings.HasPrefix(text, "ELB ") && !strings.Contains(text, "/"):
		b.Owner = "classic load balancer " + text[len("ELB "):]
	case text != "":
		b.Kind += " (" + text + ")"
	case aws.ToBool(n.RequesterManaged):
		b.Owner = "AWS service " + aws.ToString(n.RequesterId)
	}

	return b
}
