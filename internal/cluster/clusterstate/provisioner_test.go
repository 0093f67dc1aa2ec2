// SPDX-License-Identifier: Apache-2.0

package clusterstate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestChooseProvisioner: a cluster keeps the provisioner that it was created with, and one without a record
// is direct unless the caller chooses.
func TestChooseProvisioner(t *testing.T) {
	for _, c := range []struct {
		recorded, via, want clusterstate.Provisioner
		refused             string
	}{
		{"", "", clusterstate.Direct, ""},
		{"", clusterstate.CloudFormation, clusterstate.CloudFormation, ""},
		{clusterstate.CloudFormation, "", clusterstate.CloudFormation, ""},
		{clusterstate.Direct, clusterstate.Direct, clusterstate.Direct, ""},
		{clusterstate.Direct, clusterstate.CloudFormation, "", "created by the provisioner direct"},
		{"", "teletype", "", `invalid --via "teletype"`},
	} {
		s := store.NewFileStore(t.TempDir())
		if c.recorded != "" {
			if err := clusterstate.EnsureProvisioner(t.Context(), s, "demo", c.recorded); err != nil {
				t.Fatal(err)
			}
		}
		got, err := clusterstate.ChooseProvisioner(t.Context(), s, "demo", c.via)
		if c.refused == "" && (err != nil || got != c.want) {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
		if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || len(diag.Hints(err)) == 0) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestLegacyProvisionerRecord: a record that an earlier version stored as way.json counts, and is not written again.
func TestLegacyProvisionerRecord(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	if _, err := s.Create(t.Context(), "demo/way.json", []byte(`{"via":"cloudformation"}`)); err != nil {
		t.Fatal(err)
	}

	if err := clusterstate.EnsureProvisioner(t.Context(), s, "demo", clusterstate.CloudFormation); err != nil {
		t.Fatal(err)
	}

	if got, err := clusterstate.ReadProvisioner(t.Context(), s, "demo"); err != nil || got != clusterstate.CloudFormation {
		t.Errorf("got %q, %v", got, err)
	}

	if _, err := s.Get(t.Context(), "demo/provisioner.json"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the record was written again: %v", err)
	}

	if _, err := clusterstate.ChooseProvisioner(t.Context(), s, "demo", clusterstate.Direct); err == nil {
		t.Error("the legacy record was ignored")
	}

	err := clusterstate.EnsureProvisioner(t.Context(), s, "demo", clusterstate.Direct)
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second record that contradicts the legacy one: %v", err)
	}
}

// TestProvisionerRecord: the record has the stored form of earlier versions, is written once, and another
// process that chose another provisioner at the same time is refused.
func TestProvisionerRecord(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	for range 2 {
		if err := clusterstate.EnsureProvisioner(t.Context(), s, "demo", clusterstate.CloudFormation); err != nil {
			t.Fatal(err)
		}
	}
	o, err := s.Get(t.Context(), "demo/provisioner.json")
	if err != nil || string(o.Body) != `{"via":"cloudformation"}` {
		t.Errorf("stored %s, %v", o.Body, err)
	}
	written, err := clusterstate.CreateProvisionerRecord(t.Context(), s, "demo", clusterstate.CloudFormation, false)
	if err != nil || written.ETag != "" {
		t.Errorf("an equal record: wrote %+v, %v", written, err)
	}
	if _, err := clusterstate.CreateProvisionerRecord(t.Context(), s, "demo", clusterstate.Direct, false); err == nil {
		t.Error("another record was replaced")
	}
}

// TestNoDNS: that a cluster never had DNS records is recorded with its provisioner, and withdrawn for good before
// it gets some.
func TestNoDNS(t *testing.T) {
	s := store.NewFileStore(t.TempDir())
	want := func(no bool) {
		t.Helper()
		if got, err := clusterstate.HadNoDNS(t.Context(), s, "demo"); err != nil || got != no {
			t.Errorf("no DNS is %t, want %t, %v", got, no, err)
		}
	}
	want(false)
	if _, err := clusterstate.CreateProvisionerRecord(t.Context(), s, "demo", clusterstate.Direct, true); err != nil {
		t.Fatal(err)
	}
	want(true)
	for range 2 {
		if _, err := clusterstate.RecordDNS(t.Context(), s, s, "demo"); err != nil {
			t.Fatal(err)
		}
		want(false)
	}
	if via, err := clusterstate.ReadProvisioner(t.Context(), s, "demo"); err != nil || via != clusterstate.Direct {
		t.Errorf("the provisioner is %q, %v", via, err)
	}
}
