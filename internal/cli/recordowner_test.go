// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// sharedZone is a hosted zone in which two clusters of one name, in different regions, have a record.
type sharedZone struct {
	t   *testing.T
	api *route53.Client
	id  string
}

func newSharedZone(t *testing.T, r regiontest.Region) sharedZone {
	t.Helper()
	api := route53.NewFromConfig(r.AWSConfig())
	out, err := api.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
		Name: sdk.String("dns-existing.example.org"), CallerReference: sdk.String("1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return sharedZone{t: t, api: api, id: strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")}
}

func (z sharedZone) change(action r53types.ChangeAction, set r53types.ResourceRecordSet) {
	z.t.Helper()
	_, err := z.api.ChangeResourceRecordSets(z.t.Context(), &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &z.id, ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{Action: action, ResourceRecordSet: &set}}},
	})
	if err != nil {
		z.t.Fatal(err)
	}
}

// records returns the record sets of the API's name.
func (z sharedZone) records() (out []r53types.ResourceRecordSet) {
	z.t.Helper()
	list, err := z.api.ListResourceRecordSets(z.t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &z.id})
	if err != nil {
		z.t.Fatal(err)
	}
	for _, set := range list.ResourceRecordSets {
		if strings.HasPrefix(*set.Name, "api.") {
			out = append(out, set)
		}
	}
	return out
}

// TestRecordsOfAnotherCluster: a cluster of the same name in another region has the API's record in the zone. It is
// neither changed nor deleted, whether it has an id or is of an older version.
func TestRecordsOfAnotherCluster(t *testing.T) {
	r := regiontest.Start(t)
	s := newShell(t, r)
	zone := newSharedZone(t, r)
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "dns-existing.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "Z0123456789ABCDEFGHIJ", zone.id)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("state", "init", "--yes")
	s.must("create", "-f", file, "--yes", "-q")

	theirs := r53types.ResourceRecordSet{
		Name: sdk.String("api.dns-existing.example.org."), Type: r53types.RRTypeA, TTL: sdk.Int64(60), Weight: sdk.Int64(1),
		ResourceRecords: []r53types.ResourceRecord{{Value: sdk.String("192.0.2.1")}},
	}
	for setID, want := range map[string]string{
		"slipway.dev/cluster=dns-existing/bbbbbbbbbbbbbbbb": "AWS has another cluster dns-existing, with the id bbbbbbbbbbbbbbbb; it is in another region or account, and has DNS records in the same hosted zone",
		"slipway.dev/cluster=dns-existing":                  "has not created, without a cluster id: dns-record/" + zone.id + "/api.dns-existing.example.org/A",
	} {
		theirs.SetIdentifier = &setID
		zone.change(r53types.ChangeActionCreate, theirs)
		for _, args := range [][]string{{"plan", "dns-existing"}, {"apply", "dns-existing", "--yes"}, {"delete", "cluster", "dns-existing", "--yes"}} {
			if code, _, errs := s.run(args...); code != 1 || !strings.Contains(errs, want) {
				t.Errorf("%q with the record %s: exit %d, %s", args, setID, code, errs)
			}
		}
		if got := zone.records(); len(got) != 1 || *got[0].SetIdentifier != setID || *got[0].ResourceRecords[0].Value != "192.0.2.1" {
			t.Errorf("the record of the other cluster is now %v", got)
		}
		zone.change(r53types.ChangeActionDelete, theirs)
	}
	checkOldRecord(t, s, zone)
}

// checkOldRecord: the cluster's own record of an older version gets the id in place.
func checkOldRecord(t *testing.T, s shell, zone sharedZone) {
	t.Helper()
	s.must("apply", "dns-existing", "--yes", "-q")
	own := zone.records()
	if len(own) != 1 || !regexp.MustCompile(`^slipway.dev/cluster=dns-existing/[a-z2-7]{16}$`).MatchString(*own[0].SetIdentifier) {
		t.Fatalf("made %v", own)
	}
	zone.change(r53types.ChangeActionDelete, own[0])
	old := own[0]
	old.SetIdentifier = sdk.String("slipway.dev/cluster=dns-existing")
	zone.change(r53types.ChangeActionCreate, old)
	code, out, errs := s.run("plan", "dns-existing")
	if code != 2 || !strings.Contains(out, `SetIdentifier: "slipway.dev/cluster=dns-existing" → "`+*own[0].SetIdentifier) || !strings.Contains(out, "0 to add, 1 to change, 0 to destroy") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	s.must("apply", "dns-existing", "--yes", "-q")
	if now := zone.records(); len(now) != 1 || *now[0].SetIdentifier != *own[0].SetIdentifier {
		t.Errorf("migrated to %v", now)
	}
	s.must("delete", "cluster", "dns-existing", "--destroy-data", "--yes", "-q")
	if left := zone.records(); len(left) != 0 {
		t.Errorf("deleted: %v", left)
	}
}
