// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// getDNSRecord returns the cluster's current record set.
func (h awsClients) getDNSRecord() (*r53types.ResourceRecordSet, error) {
	out, err := h.dns.ListResourceRecordSets(h, &route53.ListResourceRecordSetsInput{HostedZoneId: h.resourceID("hosted-zone/main"), StartRecordName: sdk.String("api.demo.k8s.example.com")})
	if err != nil {
		return nil, err
	}
	return &out.ResourceRecordSets[0], nil
}

func (h awsClients) changeDNSRecord(action r53types.ChangeAction, r *r53types.ResourceRecordSet) error {
	_, err := h.dns.ChangeResourceRecordSets(h, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: h.resourceID("hosted-zone/main"), ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{Action: action, ResourceRecordSet: r}}},
	})
	return err
}

func dnsDrifts() []drift {
	return []drift{
		{description: "the API's DNS record is removed", change: func(h awsClients) error {
			r, err := h.getDNSRecord()
			if err != nil {
				return err
			}
			return h.changeDNSRecord(r53types.ChangeActionDelete, r)
		}, want: []string{"+ dns-record/api"}},
		{description: "the API's DNS record points elsewhere", change: func(h awsClients) error {
			r, err := h.getDNSRecord()
			if err != nil {
				return err
			}
			r.AliasTarget, r.TTL, r.ResourceRecords = nil, sdk.Int64(60), []r53types.ResourceRecord{{Value: sdk.String("192.0.2.1")}}
			return h.changeDNSRecord(r53types.ChangeActionUpsert, r)
		}, want: []string{
			"~ dns-record/api", `  AliasTarget.DNSName: (not set) → "demo-internal-`, "  AliasTarget.HostedZoneId: (not set) →",
		}},
		{description: "a zone's comment is changed", change: func(h awsClients) error {
			_, err := h.dns.UpdateHostedZoneComment(h, &route53.UpdateHostedZoneCommentInput{Id: h.resourceID("hosted-zone/main"), Comment: sdk.String("mine")})
			return err
		}, want: []string{"~ hosted-zone/main", `  HostedZoneConfig.Comment: "mine" → "slipway.dev/cluster=demo"`}},
		{description: "a zone loses a tag", change: func(h awsClients) error {
			_, err := h.dns.ChangeTagsForResource(h, &route53.ChangeTagsForResourceInput{
				ResourceType: r53types.TagResourceTypeHostedzone, ResourceId: h.resourceID("hosted-zone/main"), RemoveTagKeys: []string{"Name"},
			})
			return err
		}, want: []string{"~ hosted-zone/main", `  HostedZoneTags[Name]: (not set) → "main.demo"`}},
	}
}
