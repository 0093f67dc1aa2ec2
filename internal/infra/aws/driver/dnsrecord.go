// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type recordAPI interface {
	route53.ListResourceRecordSetsAPIClient
	ChangeResourceRecordSets(
		context.Context,
		*route53.ChangeResourceRecordSetsInput,
		...func(*route53.Options),
	) (*route53.ChangeResourceRecordSetsOutput, error)
}

// registerRecords registers the driver of record sets. An existing record set of the same name that
// is not the cluster's is never changed: Route 53 refuses to create a second one next to it.
func registerRecords(c *Cloud, api recordAPI) {
	put := func(ctx context.Context, t task[awskind.DNSRecord]) (plan.StepResult, error) {
		want := t.want
		zone := want.Zone.Literal()
		err := changeRecord(ctx, api, r53types.ChangeActionUpsert, want)
		err = transport.Wrap(err, "set record %s %s in zone %s", want.Name, want.Type, zone)

		return plan.StepResult{ID: recordID(want)}, err
	}

	registerDriver(c, driver[awskind.DNSRecord]{
		create: put,
		update: put,
		remove: func(ctx context.Context, t task[awskind.DNSRecord]) error {
			err := changeRecord(ctx, api, r53types.ChangeActionDelete, t.have)
			if isRecordNotFound(err) {
				return nil
			}

			zone := t.have.Zone.Literal()

			return transport.Wrap(err, "delete record %s %s from zone %s", t.have.Name, t.have.Type, zone)
		},
	})
}

// isRecordNotFound reports whether err means that a record to delete does not exist. Route 53 has
// no code of its own for that.
func isRecordNotFound(err error) bool {
	batch, ok := errors.AsType[*r53types.InvalidChangeBatch](err)
	return ok && strings.Contains(strings.Join(batch.Messages, " ")+batch.ErrorMessage(), "not found")
}

// recordID returns the id of a record set, which AWS identifies by these four.
func recordID(r awskind.DNSRecord) string {
	return r.Zone.Literal() + "/" + r.Name + "/" + r.Type + "/" + r.SetID
}

func changeRecord(
	ctx context.Context,
	api recordAPI,
	action r53types.ChangeAction,
	r awskind.DNSRecord,
) error {
	zone := r.Zone.Literal()
	weight := int64(r.Weight)
	set := &r53types.ResourceRecordSet{
		Name:          &r.Name,
		Type:          r53types.RRType(r.Type),
		SetIdentifier: &r.SetID,
		Weight:        &weight,
	}

	for _, v := range r.Values {
		value, _ := v.Literal()
		set.ResourceRecords = append(set.ResourceRecords, r53types.ResourceRecord{Value: &value})
	}

	if len(r.Values) > 0 {
		set.TTL = aws.Int64(int64(r.TTL))
	} else {
		name, _ := r.Alias.DNSName.Literal()
		aliasZone, _ := r.Alias.Zone.Literal()
		set.AliasTarget = &r53types.AliasTarget{
			DNSName:              &name,
			HostedZoneId:         &aliasZone,
			EvaluateTargetHealth: r.Alias.EvaluateHealth,
		}
	}

	_, err := api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &zone,
		ChangeBatch: &r53types.ChangeBatch{
			Changes: []r53types.Change{{Action: action, ResourceRecordSet: set}},
		},
	})

	return err
}

// WalkRecords calls do with each record set of the zone with id.
func WalkRecords(
	ctx context.Context,
	api route53.ListResourceRecordSetsAPIClient,
	id string,
	do func(r53types.ResourceRecordSet),
) error {
	in := &route53.ListResourceRecordSetsInput{HostedZoneId: &id}
	for {
		page, err := api.ListResourceRecordSets(ctx, in)
		if err != nil {
			return transport.Wrap(err, "list the records of zone %s", id)
		}

		for _, r := range page.ResourceRecordSets {
			do(r)
		}

		if !page.IsTruncated {
			return nil
		}

		in.StartRecordName = page.NextRecordName
		in.StartRecordType = page.NextRecordType
		in.StartRecordIdentifier = page.NextRecordIdentifier
	}
}

// readRecords returns the cluster's records in a zone, and none if the zone does not exist.
func readRecords(ctx context.Context, api recordAPI, id string, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	err := WalkRecords(ctx, api, id, func(s r53types.ResourceRecordSet) {
		if aws.ToString(s.SetIdentifier) == awskind.RecordSetID(scope.Cluster) {
			r := fromRecord(id, s)
			out = append(out, plan.ActualResource{ID: recordID(r), Resource: r})
		}
	})
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	}

	return out, err
}

func fromRecord(zone string, s r53types.ResourceRecordSet) awskind.DNSRecord {
	r := awskind.DNSRecord{
		Zone:   graph.UnmanagedRef[awskind.HostedZone](zone),
		Name:   strings.TrimSuffix(aws.ToString(s.Name), "."),
		Type:   string(s.Type),
		SetID:  aws.ToString(s.SetIdentifier),
		Weight: int(aws.ToInt64(s.Weight)),
		TTL:    int(aws.ToInt64(s.TTL)),
	}

	for _, v := range s.ResourceRecords {
		r.Values = append(r.Values, graph.LiteralText(aws.ToString(v.Value)))
	}

	if a := s.AliasTarget; a != nil {
		r.Alias = awskind.AliasTarget{
			DNSName:        graph.LiteralText(strings.TrimSuffix(aws.ToString(a.DNSName), ".")),
			Zone:           graph.LiteralText(aws.ToString(a.HostedZoneId)),
			EvaluateHealth: a.EvaluateTargetHealth,
		}
	}

	return r
}
