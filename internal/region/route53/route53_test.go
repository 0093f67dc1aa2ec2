// SPDX-License-Identifier: Apache-2.0

package route53_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// lab is a region with a client of the SDK.
type lab struct {
	*testing.T
	cfg aws.Config
	api *route53.Client
}

func newLab(t *testing.T) lab {
	t.Helper()
	cfg := regiontest.Start(t).AWSConfig()
	return lab{t, cfg, route53.NewFromConfig(cfg)}
}

func (l lab) refused(want string, err error) {
	l.Helper()
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != want {
		l.Errorf("got %v, want %s", err, want)
	}
}

func (l lab) zone(name string, vpc *string) string {
	l.Helper()
	in := &route53.CreateHostedZoneInput{Name: &name, CallerReference: aws.String(name + time.Now().String())}
	if vpc != nil {
		in.VPC = &types.VPC{VPCId: vpc, VPCRegion: regiontest.RegionName}
	}
	out, err := l.api.CreateHostedZone(l.Context(), in)
	if err != nil {
		l.Fatal(err)
	}
	if vpc == nil && len(out.DelegationSet.NameServers) != 4 {
		l.Errorf("name servers of %s: %v", name, out.DelegationSet.NameServers)
	}
	return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

func address(action types.ChangeAction, name, value string) types.Change {
	return types.Change{Action: action, ResourceRecordSet: &types.ResourceRecordSet{
		Name: &name, Type: types.RRTypeA, TTL: aws.Int64(60), ResourceRecords: []types.ResourceRecord{{Value: &value}},
	}}
}

func (l lab) change(zone string, changes ...types.Change) (*route53.ChangeResourceRecordSetsOutput, error) {
	return l.api.ChangeResourceRecordSets(l.Context(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: &zone, ChangeBatch: &types.ChangeBatch{Changes: changes}})
}

// TestBatchIsAtomic: one invalid change rejects the whole batch, and the error lists all invalid changes.
func TestBatchIsAtomic(t *testing.T) {
	l := newLab(t)
	z := l.zone("example.com", nil)
	out, err := l.change(z, address(types.ChangeActionCreate, "a.example.com", "192.0.2.1"))
	if err != nil || out.ChangeInfo.Status != types.ChangeStatusPending {
		t.Fatal(out, err)
	}
	time.Sleep(time.Second)
	if got, err := l.api.GetChange(t.Context(), &route53.GetChangeInput{Id: out.ChangeInfo.Id}); err != nil || got.ChangeInfo.Status != types.ChangeStatusInsync {
		t.Errorf("the change is %v, %v", got, err)
	}
	weighted := address(types.ChangeActionCreate, "a.example.com", "192.0.2.9")
	weighted.ResourceRecordSet.SetIdentifier, weighted.ResourceRecordSet.Weight = aws.String("x"), aws.Int64(1)
	alias := types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: &types.ResourceRecordSet{
		Name: aws.String("lb.example.com"), Type: types.RRTypeA,
		AliasTarget: &types.AliasTarget{DNSName: aws.String("nowhere.elb.us-east-1.amazonaws.com"), HostedZoneId: aws.String("Z26RNL4JYFTOTI")},
	}}
	for want, bad := range map[string]types.Change{
		"but it already exists":                 address(types.ChangeActionCreate, "a.example.com", "192.0.2.2"),
		"but it was not found":                  address(types.ChangeActionDelete, "b.example.com", "192.0.2.2"),
		"do not match the current values":       address(types.ChangeActionDelete, "A.example.com.", "192.0.2.2"),
		"is not permitted in zone example.com.": address(types.ChangeActionUpsert, "a.example.org", "192.0.2.2"),
		"is not a valid IPv4 address":           address(types.ChangeActionUpsert, "c.example.com", "::1"),
		"another routing policy":                weighted,
		"does not lie within the target zone":   alias,
	} {
		_, err := l.change(z, address(types.ChangeActionCreate, "good.example.com", "192.0.2.3"), bad)
		l.refused("InvalidChangeBatch", err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	list, err := l.api.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &z})
	if err != nil || len(list.ResourceRecordSets) != 3 {
		t.Errorf("%d records, want NS, SOA and one A: %v", len(list.ResourceRecordSets), err)
	}
	_, err = l.api.DeleteHostedZone(t.Context(), &route53.DeleteHostedZoneInput{Id: &z})
	l.refused("HostedZoneNotEmpty", err)
	if _, err := l.change(z, address(types.ChangeActionDelete, "a.example.com", "192.0.2.1")); err != nil {
		t.Error(err)
	}
	if _, err = l.api.DeleteHostedZone(t.Context(), &route53.DeleteHostedZoneInput{Id: &z}); err != nil {
		t.Error(err)
	}
	_, err = l.api.GetHostedZone(t.Context(), &route53.GetHostedZoneInput{Id: &z})
	l.refused("NoSuchHostedZone", err)
}

// TestPages: records and zones are listed in order and once each, whatever the page size.
func TestPages(t *testing.T) {
	l := newLab(t)
	z := l.zone("example.com", nil)
	l.zone("a.example.com", nil)
	l.zone("example.net", nil)
	var all []types.Change
	for i := range 25 {
		all = append(all, address(types.ChangeActionCreate, fmt.Sprintf("n%02d.example.com", i), "192.0.2.1"))
	}
	if _, err := l.change(z, all...); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: &z, MaxItems: aws.Int32(4)}
	for last := ""; ; {
		page, err := l.api.ListResourceRecordSets(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.ResourceRecordSets {
			k := *r.Name + string(r.Type)
			if seen[k]++; k <= last {
				t.Errorf("%s after %s", k, last)
			}
			last = k
		}
		if !page.IsTruncated {
			break
		}
		in.StartRecordName, in.StartRecordType = page.NextRecordName, page.NextRecordType
	}
	if len(seen) != 27 {
		t.Errorf("%d records, want 27: %v", len(seen), seen)
	}
	byName, err := l.api.ListHostedZonesByName(t.Context(), &route53.ListHostedZonesByNameInput{MaxItems: aws.Int32(1), DNSName: aws.String("a.example.com")})
	if err != nil || len(byName.HostedZones) != 1 || *byName.HostedZones[0].Name != "a.example.com." || *byName.NextDNSName != "example.net." {
		t.Errorf("by name: %+v, %v", byName, err)
	}
	zones := 0
	for pages := route53.NewListHostedZonesPaginator(l.api, &route53.ListHostedZonesInput{MaxItems: aws.Int32(2)}); pages.HasMorePages(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		zones += len(page.HostedZones)
	}
	if zones != 3 {
		t.Errorf("%d zones, want 3", zones)
	}
}

// TestPrivateZone: its VPC must exist, a VPC cannot have two zones of one name, and the last VPC cannot be removed.
func TestPrivateZone(t *testing.T) {
	l, ctx := newLab(t), t.Context()
	cloud := ec2.NewFromConfig(l.cfg)
	vpc := func(cidr string) *string {
		out, err := cloud.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: &cidr})
		if err != nil {
			t.Fatal(err)
		}
		return out.Vpc.VpcId
	}
	one, two := vpc("10.1.0.0/16"), vpc("10.2.0.0/16")
	z := l.zone("internal.example.com", one)
	in := func(id *string) *types.VPC { return &types.VPC{VPCId: id, VPCRegion: regiontest.RegionName} }
	_, err := l.api.CreateHostedZone(ctx, &route53.CreateHostedZoneInput{Name: aws.String("internal.example.com"), CallerReference: aws.String("2"), VPC: in(one)})
	l.refused("ConflictingDomainExists", err)
	_, err = l.api.CreateHostedZone(ctx, &route53.CreateHostedZoneInput{Name: aws.String("x.example.com"), CallerReference: aws.String("3"), VPC: in(aws.String("vpc-00000000"))})
	l.refused("InvalidVPCId", err)
	_, err = l.api.DisassociateVPCFromHostedZone(ctx, &route53.DisassociateVPCFromHostedZoneInput{HostedZoneId: &z, VPC: in(one)})
	l.refused("LastVPCAssociation", err)
	if _, err = l.api.AssociateVPCWithHostedZone(ctx, &route53.AssociateVPCWithHostedZoneInput{HostedZoneId: &z, VPC: in(two)}); err != nil {
		t.Error(err)
	}
	if _, err = l.api.DisassociateVPCFromHostedZone(ctx, &route53.DisassociateVPCFromHostedZoneInput{HostedZoneId: &z, VPC: in(one)}); err != nil {
		t.Error(err)
	}
	got, err := l.api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &z})
	if err != nil || len(got.VPCs) != 1 || *got.VPCs[0].VPCId != *two {
		t.Errorf("known in %v, %v", got.VPCs, err)
	}
}

// TestRightsByName: a policy can allow changes of one record name in one zone only.
func TestRightsByName(t *testing.T) {
	l, ctx := newLab(t), t.Context()
	z, other := l.zone("example.com", nil), l.zone("example.org", nil)
	who := iam.NewFromConfig(l.cfg)
	name, doc := "dns", `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"route53:ChangeResourceRecordSets","Resource":"arn:aws:route53:::hostedzone/`+z+`",
		"Condition":{"ForAllValues:StringEquals":{"route53:ChangeResourceRecordSetsNormalizedRecordNames":["api.example.com"]}}}]}`
	if _, err := who.CreateUser(ctx, &iam.CreateUserInput{UserName: &name}); err != nil {
		t.Fatal(err)
	}
	if _, err := who.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: &name, PolicyName: &name, PolicyDocument: &doc}); err != nil {
		t.Fatal(err)
	}
	key, err := who.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &name})
	if err != nil {
		t.Fatal(err)
	}
	cfg := l.cfg
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey, "")
	l.api = route53.NewFromConfig(cfg)
	if _, err := l.change(z, address(types.ChangeActionUpsert, "API.example.com.", "192.0.2.1")); err != nil {
		t.Error(err)
	}
	_, err = l.change(z, address(types.ChangeActionUpsert, "api.example.com", "192.0.2.1"), address(types.ChangeActionUpsert, "www.example.com", "192.0.2.1"))
	l.refused("AccessDenied", err)
	_, err = l.change(other, address(types.ChangeActionUpsert, "api.example.org", "192.0.2.1"))
	l.refused("AccessDenied", err)
	_, err = l.api.ListHostedZones(ctx, nil)
	l.refused("AccessDenied", err)
}

// TestOnePrivateZoneOfAName: a VPC sees one private zone of a name.
func TestOnePrivateZoneOfAName(t *testing.T) {
	l := newLab(t)
	vpc, err := ec2.NewFromConfig(l.cfg).CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	l.zone("example.internal", vpc.Vpc.VpcId)
	_, err = l.api.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
		Name: aws.String("example.internal"), CallerReference: aws.String("second"),
		VPC: &types.VPC{VPCId: vpc.Vpc.VpcId, VPCRegion: regiontest.RegionName},
	})
	l.refused("ConflictingDomainExists", err)
}

// TestRecordedAnswers: details of answers as they were recorded from the real service.
func TestRecordedAnswers(t *testing.T) {
	l := newLab(t)
	vpc, err := ec2.NewFromConfig(l.cfg).CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}

	var status int
	recordStatus := func(o *route53.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("status", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleDeserialize(ctx, in)
				if r, ok := out.RawResponse.(*smithyhttp.Response); ok {
					status = r.StatusCode
				}
				return out, metadata, err
			}), middleware.After)
		})
	}
	private := &route53.CreateHostedZoneInput{
		Name: aws.String("internal.example"), CallerReference: aws.String("one"),
		VPC: &types.VPC{VPCId: vpc.Vpc.VpcId, VPCRegion: regiontest.RegionName},
	}
	zone, err := l.api.CreateHostedZone(t.Context(), private, recordStatus)
	if err != nil || status != 201 {
		t.Fatalf("CreateHostedZone: status %d, %v; want 201", status, err)
	}

	private.CallerReference = aws.String("two")
	_, err = l.api.CreateHostedZone(t.Context(), private)
	l.refused("ConflictingDomainExists", err)
	private.VPC.VPCId = aws.String("vpc-0123456789abcdef0")
	_, err = l.api.CreateHostedZone(t.Context(), private)
	if l.refused("InvalidVPCId", err); !strings.Contains(err.Error(), "The VPC ID is invalid.") {
		t.Error(err)
	}

	records, err := l.api.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: zone.HostedZone.Id})
	if err != nil || *records.MaxItems != 100 {
		t.Errorf("MaxItems %d, %v; want 100", *records.MaxItems, err)
	}

	zones, err := l.api.ListHostedZonesByVPC(t.Context(), &route53.ListHostedZonesByVPCInput{VPCId: vpc.Vpc.VpcId, VPCRegion: regiontest.RegionName})
	if err != nil || len(zones.HostedZoneSummaries) != 1 || aws.ToString(zones.HostedZoneSummaries[0].Owner.OwningAccount) != regiontest.AccountID {
		t.Errorf("zones of the VPC: %+v, %v", zones.HostedZoneSummaries, err)
	}

	_, err = l.api.ChangeTagsForResource(t.Context(), &route53.ChangeTagsForResourceInput{
		ResourceType: types.TagResourceTypeHostedzone, ResourceId: zone.HostedZone.Id, AddTags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
	})
	if l.refused("InvalidInput", err); !strings.Contains(err.Error(), "Member must have length less than or equal to 32") {
		t.Error(err)
	}
}

// TestBatchesHaveAtMost1000Records: a record of an UPSERT counts twice.
func TestBatchesHaveAtMost1000Records(t *testing.T) {
	l := newLab(t)
	zone := l.zone("example.com", nil)

	batch := func(action types.ChangeAction, sets, records int) error {
		var changes []types.Change
		for i := range sets {
			change := address(action, fmt.Sprintf("%s-%d.example.com", strings.ToLower(string(action)), i), "10.0.0.0")
			for record := 1; record < records; record++ {
				value := fmt.Sprintf("10.0.%d.%d", i, record)
				change.ResourceRecordSet.ResourceRecords = append(change.ResourceRecordSet.ResourceRecords, types.ResourceRecord{Value: &value})
			}

			changes = append(changes, change)
		}

		_, err := l.change(zone, changes...)

		return err
	}

	for _, x := range []struct {
		action        types.ChangeAction
		sets, records int
		refused       bool
	}{
		{types.ChangeActionCreate, 5, 201, true},
		{types.ChangeActionCreate, 5, 200, false},
		{types.ChangeActionUpsert, 3, 167, true},
		{types.ChangeActionUpsert, 2, 250, false},
	} {
		err := batch(x.action, x.sets, x.records)
		if !x.refused && err != nil {
			t.Errorf("%+v: %v", x, err)
		}

		if x.refused {
			l.refused("InvalidChangeBatch", err)
		}
	}
}

// TestTagsOfZonesChangeInTens: Route 53 adds and removes ten tags in a request.
func TestTagsOfZonesChangeInTens(t *testing.T) {
	l := newLab(t)
	id := l.zone("example.com", nil)
	in := &route53.ChangeTagsForResourceInput{ResourceId: &id, ResourceType: types.TagResourceTypeHostedzone}
	for i := range 10 {
		in.AddTags = append(in.AddTags, types.Tag{Key: aws.String(string(rune('a' + i))), Value: aws.String("")})
	}
	if _, err := l.api.ChangeTagsForResource(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	in.AddTags = append(in.AddTags, types.Tag{Key: aws.String("z"), Value: aws.String("")})
	_, err := l.api.ChangeTagsForResource(t.Context(), in)
	l.refused("InvalidInput", err)
}

// TestChangesKeepTheirComments: a change has the comment of its request.
func TestChangesKeepTheirComments(t *testing.T) {
	l := newLab(t)
	id := l.zone("example.com", nil)
	made, err := l.api.ChangeResourceRecordSets(t.Context(), &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &id,
		ChangeBatch: &types.ChangeBatch{
			Comment: aws.String("why"),
			Changes: []types.Change{address(types.ChangeActionCreate, "a.example.com", "10.0.0.1")},
		},
	})
	if err != nil || aws.ToString(made.ChangeInfo.Comment) != "why" {
		t.Fatalf("%+v, %v", made, err)
	}
	read, err := l.api.GetChange(t.Context(), &route53.GetChangeInput{Id: made.ChangeInfo.Id})
	if err != nil || aws.ToString(read.ChangeInfo.Comment) != "why" {
		t.Errorf("%+v, %v", read, err)
	}
}
