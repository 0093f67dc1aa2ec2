// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// HostedZone is a zone of Route 53. One with VPCs is private: it is known in these only.
type HostedZone struct {
	Name   string           `aws:"Name,immutable"` // without a dot at its end
	Config HostedZoneConfig `aws:"HostedZoneConfig" tf:"-,inline"`
	VPCs   []ZoneVPC        `aws:"VPCs,set" tf:"vpc"`
	Tags   Tags             `aws:"HostedZoneTags,tags" tf:"tags"`
}

// HostedZoneConfig of a [HostedZone].
type HostedZoneConfig struct {
	Comment string `aws:"Comment"`
}

// ZoneVPC is a VPC that knows a private zone.
type ZoneVPC struct {
	VPC    graph.Ref[VPC] `aws:"VPCId" tf:"vpc_id"`
	Region string         `aws:"VPCRegion" tf:"vpc_region"`
}

// Kind implements [graph.Resource].
func (HostedZone) Kind() graph.Kind {
	return graph.Kind{
		Name:           "hosted-zone",
		Terraform:      "aws_route53_zone",
		CloudFormation: "AWS::Route53::HostedZone",
		Outputs:        []string{""},
	}
}

// DNSRecord is a record set. It has no tags: its identifier says whose it is, and weighs nothing beside no other.
type DNSRecord struct {
	Zone   graph.Ref[HostedZone] `aws:"HostedZoneId,immutable" tf:"zone_id"`
	Name   string                `aws:"Name,immutable"` // without a dot at its end
	Type   string                `aws:"Type"`           // A
	SetID  string                `aws:"SetIdentifier"`
	Weight int                   `aws:"Weight" tf:"weighted_routing_policy.weight"`
	TTL    int                   `aws:"TTL" cfn:"text"` // seconds; not of an alias
	Values []graph.Text          `aws:"ResourceRecords,set" tf:"records"`
	Alias  AliasTarget           `aws:"AliasTarget" tf:"alias"`
}

// AliasTarget leads a [DNSRecord] to what has addresses in AWS, such as a load balancer.
type AliasTarget struct {
	DNSName        graph.Text `aws:"DNSName" tf:"name"`
	Zone           graph.Text `aws:"HostedZoneId" tf:"zone_id"`
	EvaluateHealth bool       `aws:"EvaluateTargetHealth,always"`
}

// Kind implements [graph.Resource].
func (DNSRecord) Kind() graph.Kind {
	return graph.Kind{
		Name:           "dns-record",
		Terraform:      "aws_route53_record",
		CloudFormation: "AWS::Route53::RecordSet",
		KeyProperties:  []string{"HostedZoneId", "Name", "Type", "SetIdentifier"},
	}
}

// ZoneName is the name of the zone that is made, in its address.
const ZoneName = "main"

// RecordSetID is the identifier of the record sets of a cluster.
func RecordSetID(cluster string) string { return TagCluster + "=" + cluster }
