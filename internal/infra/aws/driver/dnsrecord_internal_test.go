// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// fakeZone records changes. Another cluster creates its record together with the first change if other is set.
type fakeZone struct {
	other   string
	sets    []r53types.ResourceRecordSet
	batches []string
}

// ChangeResourceRecordSets implements [recordAPI].
func (z *fakeZone) ChangeResourceRecordSets(_ context.Context, in *route53.ChangeResourceRecordSetsInput, _ ...func(*route53.Options)) (*route53.ChangeResourceRecordSetsOutput, error) {
	var batch []string
	for _, c := range in.ChangeBatch.Changes {
		batch = append(batch, fmt.Sprintf("%s %s", c.Action, *c.ResourceRecordSet.SetIdentifier))
		z.sets = append(z.sets, *c.ResourceRecordSet)
	}
	if z.other != "" && len(z.batches) == 0 {
		set := z.sets[0]
		set.SetIdentifier = &z.other
		z.sets = append(z.sets, set)
	}
	z.batches = append(z.batches, strings.Join(batch, ", "))
	return &route53.ChangeResourceRecordSetsOutput{}, nil
}

// ListResourceRecordSets implements [recordAPI].
func (z *fakeZone) ListResourceRecordSets(context.Context, *route53.ListResourceRecordSetsInput, ...func(*route53.Options)) (*route53.ListResourceRecordSetsOutput, error) {
	return &route53.ListResourceRecordSetsOutput{ResourceRecordSets: append(z.sets, r53types.ResourceRecordSet{
		Name: aws.String("next.example.org."), Type: r53types.RRTypeA, SetIdentifier: aws.String("blue"),
	})}, nil
}

func apiRecord(setID string) awskind.DNSRecord {
	return awskind.DNSRecord{
		Zone: graph.UnmanagedRef[awskind.HostedZone]("Z1"), Name: "api.example.org", Type: "A", SetID: setID, Weight: 1,
		TTL: 60, Values: []graph.Text{graph.LiteralText("192.0.2.1")},
	}
}

// TestRecordOfTwoClusters: two clusters of one name that create the record of one name at the same time.
func TestRecordOfTwoClusters(t *testing.T) {
	ours := awskind.RecordSetID("demo", "aaaaaaaaaaaaaaaa")
	alone := &fakeZone{}
	if err := createRecord(t.Context(), alone, apiRecord(ours)); err != nil || len(alone.batches) != 1 {
		t.Errorf("%v, %q", err, alone.batches)
	}

	zone := &fakeZone{other: awskind.RecordSetID("demo", "bbbbbbbbbbbbbbbb")}
	err := createRecord(t.Context(), zone, apiRecord(ours))
	if err == nil || !strings.Contains(err.Error(), "zone Z1 has another record api.example.org A, with the set identifier "+zone.other) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"UPSERT " + ours, "DELETE " + ours}, zone.batches); diff != "" {
		t.Error(diff)
	}
}

// TestRecordGetsItsID: the record of an older version, without an id, is replaced in one batch.
func TestRecordGetsItsID(t *testing.T) {
	zone := &fakeZone{}
	old := apiRecord(awskind.RecordSetID("demo", ""))
	now := apiRecord(awskind.RecordSetID("demo", "aaaaaaaaaaaaaaaa"))
	if err := updateRecord(t.Context(), zone, task[awskind.DNSRecord]{have: old, want: now}); err != nil {
		t.Fatal(err)
	}
	if err := updateRecord(t.Context(), zone, task[awskind.DNSRecord]{have: now, want: now}); err != nil {
		t.Fatal(err)
	}
	want := []string{"DELETE slipway.dev/cluster=demo, UPSERT slipway.dev/cluster=demo/aaaaaaaaaaaaaaaa", "UPSERT slipway.dev/cluster=demo/aaaaaaaaaaaaaaaa"}
	if diff := cmp.Diff(want, zone.batches); diff != "" {
		t.Error(diff)
	}
}

// TestRecordSetOwner: names of clusters are compared as a whole.
func TestRecordSetOwner(t *testing.T) {
	for setID, want := range map[string]string{
		"slipway.dev/cluster=demo": " true", "slipway.dev/cluster=demo/abc": "abc true", "slipway.dev/cluster=demo-2": " false",
		"slipway.dev/cluster=demo-2/abc": " false", "blue": " false", "": " false",
	} {
		id, found := awskind.RecordSetOwner(setID, "demo")
		if got := fmt.Sprint(id, " ", found); got != want {
			t.Errorf("%q: %q, want %q", setID, got, want)
		}
	}
}
