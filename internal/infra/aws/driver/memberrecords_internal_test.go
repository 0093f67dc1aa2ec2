// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// filledZone is a zone that Route 53 deletes only when nothing but its own records is in it.
type filledZone struct {
	zoneAPI

	records []r53types.ResourceRecordSet
	deleted bool
}

func (z *filledZone) ListResourceRecordSets(
	context.Context,
	*route53.ListResourceRecordSetsInput,
	...func(*route53.Options),
) (*route53.ListResourceRecordSetsOutput, error) {
	return &route53.ListResourceRecordSetsOutput{ResourceRecordSets: z.records}, nil
}

func (z *filledZone) ChangeResourceRecordSets(
	_ context.Context,
	in *route53.ChangeResourceRecordSetsInput,
	_ ...func(*route53.Options),
) (*route53.ChangeResourceRecordSetsOutput, error) {
	for _, c := range in.ChangeBatch.Changes {
		z.records = slices.DeleteFunc(z.records, func(r r53types.ResourceRecordSet) bool {
			return c.Action == r53types.ChangeActionDelete && *r.Name == *c.ResourceRecordSet.Name && r.Type == c.ResourceRecordSet.Type
		})
	}

	return &route53.ChangeResourceRecordSetsOutput{}, nil
}

func (z *filledZone) DeleteHostedZone(
	context.Context,
	*route53.DeleteHostedZoneInput,
	...func(*route53.Options),
) (*route53.DeleteHostedZoneOutput, error) {
	for _, r := range z.records {
		if r.Type != r53types.RRTypeNs && r.Type != r53types.RRTypeSoa {
			return nil, &r53types.HostedZoneNotEmpty{}
		}
	}

	z.deleted = true

	return &route53.DeleteHostedZoneOutput{}, nil
}

func record(kind r53types.RRType, name string) r53types.ResourceRecordSet {
	return r53types.ResourceRecordSet{Type: kind, Name: &name}
}

// TestDeleteZoneWithRecordsOfMembers: a late run of the function does not keep the zone, and other records do.
func TestDeleteZoneWithRecordsOfMembers(t *testing.T) {
	own := []r53types.ResourceRecordSet{
		record(r53types.RRTypeNs, "demo.internal."),
		record(r53types.RRTypeSoa, "demo.internal."),
		record(r53types.RRTypeA, "etcd-a.demo.internal."),
		record(r53types.RRTypeSrv, "_etcd-server-ssl._tcp.demo.internal."),
		record(r53types.RRTypeSrv, "_etcd-client-ssl._tcp.demo.internal."),
	}
	z := &filledZone{records: slices.Clone(own)}
	if err := deleteZone(t.Context(), z, "Z1", "demo.internal"); err != nil || !z.deleted {
		t.Errorf("%+v, %v", z, err)
	}

	for _, other := range []r53types.ResourceRecordSet{
		record(r53types.RRTypeCname, "etcd-a.demo.internal."),
		record(r53types.RRTypeA, "etcd-a.sub.demo.internal."),
		record(r53types.RRTypeA, "etcd-backup.demo.internal."),
		record(r53types.RRTypeA, "etcd-a.other.internal."),
	} {
		z := &filledZone{records: append(slices.Clone(own), other)}
		err := deleteZone(t.Context(), z, "Z1", "demo.internal.")
		if z.deleted || err == nil || !strings.Contains(err.Error(), *other.Name) || len(z.records) != 3 {
			t.Errorf("%s: %+v, %v", *other.Name, z, err)
		}
	}
}
