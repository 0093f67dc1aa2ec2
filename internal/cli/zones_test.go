// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestRecordsLeaveOldZones: a manifest names another existing zone, or none; the record in the one before is taken away.
func TestRecordsLeaveOldZones(t *testing.T) {
	r := regiontest.Start(t)
	s := newShell(t, r)
	api := route53.NewFromConfig(r.AWSConfig())
	zone := func(reference string) string {
		out, err := api.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: sdk.String("dns-existing.example.org"), CallerReference: &reference})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
	}
	records := func(id string) (n int) {
		out, err := api.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: &id})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.ResourceRecordSets) - 2 // NS and SOA
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "dns-existing.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	write := func(from, to string) {
		text = []byte(strings.ReplaceAll(string(text), from, to))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second := zone("1"), zone("2")
	s.must("state", "init", "--yes")
	write("Z0123456789ABCDEFGHIJ", first)
	s.must("create", "-f", file, "--yes", "-q")
	s.must("apply", "dns-existing", "--yes", "-q")
	if records(first) != 1 || records(second) != 0 {
		t.Fatalf("made: %d and %d records", records(first), records(second))
	}
	write(first, second)
	s.must("replace", "-f", file, "--yes", "-q")
	s.must("apply", "dns-existing", "--yes", "-q")
	if records(first) != 0 || records(second) != 1 {
		t.Errorf("moved: %d and %d records", records(first), records(second))
	}
	if out := s.must("plan", "dns-existing"); !strings.Contains(out, "No changes") {
		t.Error(out)
	}
	s.must("delete", "cluster", "dns-existing", "--destroy-data", "--yes", "-q")
	if records(first) != 0 || records(second) != 0 {
		t.Errorf("deleted: %d and %d records", records(first), records(second))
	}
}
