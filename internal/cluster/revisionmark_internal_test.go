// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/ownership"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/pki/pkitest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestRevisionOfVolumes: the revision is that of the cluster's own volumes, and of those that this store has marked, whatever
// the record of the cluster's id is. It is written to the volume of slot a only, once this store has changed the cluster.
func TestRevisionOfVolumes(t *testing.T) {
	const (
		ours   = "aaaaaaaaaaaaaaaa"
		others = "bbbbbbbbbbbbbbbb"
		mine   = "s3://bucket/team"
	)
	for name, c := range map[string]struct {
		id, state, address string
		gone               bool
		revision           int64
		writable           bool
	}{
		"of slot a":                     {ours, mine, "volume/etcd-a", false, 7, true},
		"of slot a, without an id":      {"", mine, "volume/etcd-a", false, 7, true},
		"of slot a, marked by a copy":   {ours, "s3://copy/team", "volume/etcd-a", false, 7, true},
		"of slot a, being deleted":      {ours, mine, "volume/etcd-a", true, 7, false},
		"of slot b":                     {ours, mine, "volume/etcd-b", false, 7, false},
		"of another id, of this store":  {others, mine, "volume/etcd-a", false, 7, false},
		"of another cluster and store":  {others, "s3://other/team", "volume/etcd-a", false, 0, false},
		"of another cluster, no record": {others, "", "volume/etcd-a", false, 0, false},
	} {
		volume := ec2types.Volume{VolumeId: new("vol-1"), State: ec2types.VolumeStateInUse}
		if c.gone {
			volume.State = ec2types.VolumeStateDeleting
		}

		for key, value := range map[string]string{
			"slipway.dev/id":       c.id,
			"slipway.dev/state":    c.state,
			"slipway.dev/address":  c.address,
			"slipway.dev/revision": "7",
		} {
			if value != "" {
				volume.Tags = append(volume.Tags, ec2types.Tag{Key: new(key), Value: new(value)})
			}
		}

		m := revisionMark{owner: ownership.Owner{Store: mine, Tokens: []string{"token", ""}}}
		m = m.with(clusterstate.Ownership{ID: ours}, volume)
		if m.revision != c.revision || m.isWritable() != c.writable {
			t.Errorf("a volume %s: revision %d, writable %v", name, m.revision, m.isWritable())
		}

		m.owner.Tokens = nil // Terraform has created the cluster
		if m.isWritable() {
			t.Errorf("a volume %s: a store that has changed nothing writes the revision", name)
		}
	}
}

// TestOlderDocuments: documents that somebody has changed since they were read are a conflict, and not an attack.
func TestOlderDocuments(t *testing.T) {
	ctx := t.Context()
	s := store.NewFileStore(t.TempDir())
	ca := pkitest.NewKubernetesCA(t, time.Now())
	certs, err := json.Marshal(pki.PublicBundle{CAs: map[string]string{pki.KubernetesCA: string(ca.CertsPEM())}})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Put(ctx, "demo/pki/certs.json", certs); err != nil {
		t.Fatal(err)
	}

	sign := func(revision int64) clusterstate.Signed {
		o, err := clusterstate.NewSigner(s, "demo", ca.Key(), revision, clusterstate.Signed{}).SignNew(nil)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Put(ctx, o.Key, o.Body); err != nil {
			t.Fatal(err)
		}

		signed, err := clusterstate.ReadSignature(ctx, s, "demo")
		if err != nil || signed.Revision != revision {
			t.Fatalf("revision %d: %v", signed.Revision, err)
		}

		return signed
	}

	last := sign(20)
	read := sign(10)
	if err := newOlderError(ctx, s, "demo", read, 20); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("restored documents: %v", err)
	}

	if err := newOlderError(ctx, s, "demo", clusterstate.Signed{}, 20); !errors.Is(err, clusterstate.ErrTampered) {
		t.Errorf("a deleted signature: %v", err)
	}

	if _, err := s.Put(ctx, last.Object.Key, last.Object.Body); err != nil {
		t.Fatal(err)
	}

	if err := newOlderError(ctx, s, "demo", read, 20); !errors.Is(err, store.ErrConflict) {
		t.Errorf("documents that were changed meanwhile: %v", err)
	}
}
