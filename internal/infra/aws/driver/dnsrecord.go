// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
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

// registerRecords registers the driver of record sets. An existing record set of the same name that is not
// the cluster's is never changed. Route 53 refuses to create a second one next to it, except next to another
// weighted one, such as that of another cluster of the same name: see createRecord.
func registerRecords(c *Cloud, api recordAPI) {
	registerDriver(c, driver[awskind.DNSRecord]{
		create: func(ctx context.Context, t task[awskind.DNSRecord]) (plan.StepResult, error) {
			return plan.StepResult{ID: recordID(t.want)}, createRecord(ctx, api, t.want)
		},
		update: func(ctx context.Context, t task[awskind.DNSRecord]) (plan.StepResult, error) {
			return plan.StepResult{ID: recordID(t.want)}, updateRecord(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.DNSRecord]) error {
			return removeRecord(ctx, api, t.have)
		},
	})
}

// createRecord creates a record set and then looks whether it is the only one of its name and type. Another
// cluster of the same name may have created its own since the plan was made, and resolvers would get the address
// of either. Both see the other one then, so at least one of them removes its own.
func createRecord(ctx context.Context, api recordAPI, want awskind.DNSRecord) error {
	zone := want.Zone.Literal()
	err := changeRecord(ctx, api, recordChange{r53types.ChangeActionUpsert, want})
	if err != nil {
		return transport.Wrap(err, "create record %s %s in zone %s", want.Name, want.Type, zone)
	}

	other, err := findOtherRecord(ctx, api, want)
	if err != nil || other == "" {
		return err
	}

	err = fmt.Errorf("zone %s has another record %s %s, with the set identifier %s, created at the same time",
		zone, want.Name, want.Type, other)
	if removeErr := removeRecord(ctx, api, want); removeErr != nil {
		return errors.Join(err, removeErr)
	}

	return err
}

// findOtherRecord returns the set identifier of another record set with the name and type of r; empty if there
// is none.
func findOtherRecord(ctx context.Context, api recordAPI, r awskind.DNSRecord) (string, error) {
	zone := r.Zone.Literal()
	page, err := api.ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{
		HostedZoneId:    &zone,
		StartRecordName: &r.Name,
		StartRecordType: r53types.RRType(r.Type),
	})
	if err != nil {
		return "", transport.Wrap(err, "list the records %s of zone %s", r.Name, zone)
	}

	for _, s := range page.ResourceRecordSets {
		found := fromRecord(zone, s)
		if found.Name == r.Name && found.Type == r.Type && found.SetID != r.SetID {
			return found.SetID, nil
		}
	}

	return "", nil
}

// updateRecord changes a record set in one batch, which Route 53 applies completely or not at all. The record
// set of an older version, without the cluster's id, is replaced by one with the id.
func updateRecord(ctx context.Context, api recordAPI, t task[awskind.DNSRecord]) error {
	changes := []recordChange{{r53types.ChangeActionUpsert, t.want}}
	if t.have.SetID != t.want.SetID {
		changes = []recordChange{{r53types.ChangeActionDelete, t.have}, {r53types.ChangeActionUpsert, t.want}}
	}

	err := changeRecord(ctx, api, changes...)

	return transport.Wrap(err, "set record %s %s in zone %s", t.want.Name, t.want.Type, t.want.Zone.Literal())
}

func removeRecord(ctx context.Context, api recordAPI, have awskind.DNSRecord) error {
	err := changeRecord(ctx, api, recordChange{r53types.ChangeActionDelete, have})
	if isRecordNotFound(err) {
		return nil
	}

	return transport.Wrap(err, "delete record %s %s from zone %s", have.Name, have.Type, have.Zone.Literal())
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

// recordChange is one change of a batch.
type recordChange struct {
	action r53types.ChangeAction
	record awskind.DNSRecord
}

// changeRecord makes changes in one zone: all of them or none.
func changeRecord(ctx context.Context, api recordAPI, changes ...recordChange) error {
	zone := changes[0].record.Zone.Literal()
	batch := &r53types.ChangeBatch{}

	for _, c := range changes {
		batch.Changes = append(batch.Changes, r53types.Change{
			Action:            c.action,
			ResourceRecordSet: toRecordSet(c.record),
		})
	}

	_, err := api.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &zone,
		ChangeBatch:  batch,
	})

	return err
}

func toRecordSet(r awskind.DNSRecord) *r53types.ResourceRecordSet {
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

	return set
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

// readRecords returns the records in a zone of all clusters of the cluster's name, and none if the zone does not
// exist.
func readRecords(ctx context.Context, api recordAPI, id string, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	err := WalkRecords(ctx, api, id, func(s r53types.ResourceRecordSet) {
		if _, found := awskind.RecordSetOwner(aws.ToString(s.SetIdentifier), scope.Cluster); found {
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
