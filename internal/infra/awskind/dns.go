// SPDX-License-Identifier: Apache-2.0

package awskind

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// HostedZone is a Route 53 hosted zone. A zone with VPCs is private: it resolves only in these.
type HostedZone struct {
	Name   string           `aws:"Name,immutable"` // without a trailing dot
	Config HostedZoneConfig `aws:"HostedZoneConfig" tf:"-,inline"`
	VPCs   []ZoneVPC        `aws:"VPCs,set" tf:"vpc"` // empty: a public zone
	Tags   Tags             `aws:"HostedZoneTags,tags" tf:"tags"`
}

// HostedZoneConfig is the configuration of a [HostedZone].
type HostedZoneConfig struct {
	Comment string `aws:"Comment"` // from [ZoneComment]
}

// ZoneVPC is a VPC in which a private zone resolves.
type ZoneVPC struct {
	VPC    graph.Ref[VPC] `aws:"VPCId" tf:"vpc_id"`
	Region string         `aws:"VPCRegion" tf:"vpc_region"` // of the VPC
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

// DNSRecord is a Route 53 record set. It cannot have tags, so SetID names the cluster that owns it, by its name
// and its id; that makes it a weighted record set, whose weight has no effect as long as it is the only one.
type DNSRecord struct {
	Zone   graph.Ref[HostedZone] `aws:"HostedZoneId,immutable" tf:"zone_id"`
	Name   string                `aws:"Name,immutable"`                             // without a trailing dot
	Type   string                `aws:"Type"`                                       // A
	SetID  string                `aws:"SetIdentifier"`                              // from [RecordSetID]
	Weight int                   `aws:"Weight" tf:"weighted_routing_policy.weight"` // 1
	// seconds; unset for an alias
	TTL int `aws:"TTL" cfn:"text"`
	// addresses; unset for an alias
	Values []graph.Text `aws:"ResourceRecords,set" tf:"records"`
	// instead of TTL and Values
	Alias AliasTarget `aws:"AliasTarget" tf:"alias"`
}

// AliasTarget points a [DNSRecord] to an AWS resource with addresses, such as a load balancer.
type AliasTarget struct {
	DNSName graph.Text `aws:"DNSName" tf:"name"`
	Zone    graph.Text `aws:"HostedZoneId" tf:"zone_id"` // the load balancer's own zone
	// false: the load balancer checks its targets
	EvaluateHealth bool `aws:"EvaluateTargetHealth,always"`
}

// Kind implements [graph.Resource].
func (DNSRecord) Kind() graph.Kind {
	return graph.Kind{
		Name:           "dns-record",
		Terraform:      "aws_route53_record",
		CloudFormation: "AWS::Route53::RecordSet",
		KeyProperties:  []string{"HostedZoneId", "Name", "Type"},
	}
}

// ZoneName is the name, in the graph, of the hosted zone that Slipway creates.
const ZoneName = "main"

// ZoneComment returns the comment of the hosted zone of a cluster. It begins the caller reference too.
func ZoneComment(cluster string) string { return TagCluster + "=" + cluster }

// RecordSetID returns the SetIdentifier of the record sets of the cluster with a name and an id. Clusters of an
// older version of Slipway have no id: theirs has only the name.
func RecordSetID(cluster, id string) string {
	if id == "" {
		return ZoneComment(cluster)
	}

	return ZoneComment(cluster) + "/" + id
}

// RecordSetOwner returns the id of the cluster in the SetIdentifier of a record set, which is empty if it has
// only the name. It returns false if the record set does not belong to a cluster of that name.
func RecordSetOwner(setID, cluster string) (id string, found bool) {
	rest, found := strings.CutPrefix(setID, ZoneComment(cluster))
	if !found || rest == "" {
		return "", found
	}

	if id, found = strings.CutPrefix(rest, "/"); !found {
		return "", false
	}

	return id, true
}
