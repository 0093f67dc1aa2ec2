// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

var errKilled = errors.New("killed")

// killedStore is a store whose user is killed at one of its writes.
type killedStore struct {
	store.Store
	left *int
}

func (s killedStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	if *s.left--; *s.left < 0 {
		return "", errKilled
	}
	return s.Store.Put(ctx, key, body)
}

func (s killedStore) Create(ctx context.Context, key string, body []byte) (string, error) {
	if *s.left--; *s.left < 0 {
		return "", errKilled
	}
	return s.Store.Create(ctx, key, body)
}

// twoClusters are a cluster with a backup, and a new one.
type twoClusters struct {
	*testing.T
	from, to backup.Archive
	source   source
	key      pki.Key
	// authority is that of the new one.
	authority authority
}

func newTwoClusters(t *testing.T) twoClusters {
	t.Helper()
	c := twoClusters{T: t}
	for name, archive := range map[string]*backup.Archive{"old": &c.from, "new": &c.to} {
		id, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		*archive = backup.Archive{Store: store.NewFileStore(t.TempDir()), Sealer: store.NewAgeSealer(id), Cluster: name, PartSize: 1000}
		keys, err := pki.EnsureBundle(t.Context(), store.NewFileStore(t.TempDir()), archive.Sealer, name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pki.PublishMachineKeys(t.Context(), keys, archive.Store, archive.Sealer); err != nil {
			t.Fatal(err)
		}
		if name == "old" {
			c.key = keys.Encryption
		} else {
			c.authority = func(context.Context) (pki.CA, error) { return keys.CAs[pki.KubernetesCA], nil }
		}
	}
	m, err := c.from.Upload(t.Context(), "20261122t101500z-abcdef", strings.NewReader(strings.Repeat("snapshot", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	m.ClusterID = "id-of-old"
	if err := c.from.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c.source = source{archive: c.from, backup: backup.Backup{Metadata: m}}
	return c
}

// plan returns the plan of a restoration as planCopy makes it.
func (c twoClusters) plan() RestorePlan {
	c.Helper()
	out := RestorePlan{Cluster: "new", From: "old", source: &c.source, Backup: c.source.backup, Generation: 2, Slot: "a"}
	listing, err := (&backup.Catalog{Archive: c.to}).List(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	origin := backup.Origin{Cluster: "old", ClusterID: "id-of-old", ID: c.source.backup.ID}
	if found, ok := listing.FindCopy(origin); ok {
		out.Backup = found
	}
	return out
}

// TestCopyIsKilled kills a restoration from another cluster at each write. The next one ends with one copy that the machines of
// the new cluster can read, and with the old key; before that no generation exists.
func TestCopyIsKilled(t *testing.T) {
	for kill := 0; ; kill++ {
		c := newTwoClusters(t)
		left := kill
		killed := false
		for range 2 {
			admin := &Admin{env: &cluster.Env{Now: time.Now}, name: "new", archive: c.to, authority: c.authority}
			admin.archive.Store = killedStore{c.to.Store, &left}
			plan := c.plan()
			err := admin.copyBackup(t.Context(), &plan)
			if err == nil {
				err = admin.beginGeneration(t.Context(), plan)
			}
			if err == nil {
				c.check(plan.Backup.ID)
				break
			}
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if g, _, err := (&Admin{name: "new", archive: c.to, authority: c.authority}).lastGeneration(t.Context()); err != nil || g != nil {
				t.Fatalf("killed at write %d: a generation without its backup: %+v, %v", kill, g, err)
			}
			killed = true
			left = 1000
		}
		if !killed {
			t.Logf("COUNT %d kills of a copy", kill)
			return
		}
	}
}

func (c twoClusters) check(id string) {
	c.Helper()
	listing, err := (&backup.Catalog{Archive: c.to}).List(c.Context())
	if err != nil || len(listing.Backups) != 1 {
		c.Fatalf("%d copies, %v", len(listing.Backups), err)
	}
	var out bytes.Buffer
	if err := c.to.Download(c.Context(), listing.Backups[0].Metadata, &out); err != nil || out.Len() != 8000 {
		c.Fatalf("the copy: %d bytes, %v", out.Len(), err)
	}
	g, _, err := (&Admin{name: "new", archive: c.to, authority: c.authority}).lastGeneration(c.Context())
	if err != nil || g == nil || g.Backup != id || listing.Backups[0].ID != id || g.Bytes != 8000 {
		c.Fatalf("generation %+v of copy %s: %v", g, id, err)
	}
	keys, err := pki.LoadFormerKeys(c.Context(), c.to.Store, c.to.Sealer, "new")
	if err != nil || len(keys) != 1 || !keys[0].Public().Equal(c.key.Public()) {
		c.Fatalf("%d former keys: %v", len(keys), err)
	}
}

// TestKeysOfKeys: a cluster that was itself restored from another one passes on the keys of both.
func TestKeysOfKeys(t *testing.T) {
	c := newTwoClusters(t)
	older, err := pki.NewKey(pki.EncryptionKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.PublishFormerKey(t.Context(), c.from.Store, c.from.Sealer, "old", older); err != nil {
		t.Fatal(err)
	}
	admin := &Admin{name: "new", archive: c.to}
	if err := admin.copyKeys(t.Context(), "old", c.from); err != nil {
		t.Fatal(err)
	}
	if keys, err := pki.LoadFormerKeys(t.Context(), c.to.Store, c.to.Sealer, "new"); err != nil || len(keys) != 2 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

func TestCheckCopy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *backup.Metadata, to *v1alpha1.Cluster)
		want   string
	}{
		"fits":                {func(*backup.Metadata, *v1alpha1.Cluster) {}, ""},
		"an older Kubernetes": {func(m *backup.Metadata, _ *v1alpha1.Cluster) { m.KubernetesVersion = "1.35.9" }, ""},
		"a newer patch":       {func(m *backup.Metadata, _ *v1alpha1.Cluster) { m.KubernetesVersion = "1.36.9" }, ""},
		"a newer Kubernetes":  {func(m *backup.Metadata, _ *v1alpha1.Cluster) { m.KubernetesVersion = "1.37.0" }, "which does not read newer objects"},
		"other addresses": {func(_ *backup.Metadata, to *v1alpha1.Cluster) {
			to.Spec.Networking.ServiceClusterIPRange = "10.9.0.0/16"
		}, "serviceClusterIPRange"},
		"other addresses of pods":    {func(_ *backup.Metadata, to *v1alpha1.Cluster) { to.Spec.Networking.PodCIDR = "10.8.0.0/16" }, "podCIDR"},
		"another domain of Services": {func(_ *backup.Metadata, to *v1alpha1.Cluster) { to.Spec.Networking.DNSDomain = "x.local" }, "dnsDomain"},
	} {
		m := backup.Metadata{ID: "b", KubernetesVersion: "1.36.3"}
		var from, to v1alpha1.Cluster
		for _, each := range []*v1alpha1.Cluster{&from, &to} {
			each.Spec.KubernetesVersion = "1.36.3"
			each.Spec.Networking.ServiceClusterIPRange = "10.96.0.0/16"
			each.Spec.Networking.PodCIDR = "10.244.0.0/16"
			each.Spec.Networking.DNSDomain = "cluster.local"
		}
		c.change(&m, &to)
		err := checkCopy(m, from, to)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestDamagedBackupStopsNothing: before the generation is written, which stops all members, the whole backup was checked, and the size
// of the volumes.
func TestDamagedBackupStopsNothing(t *testing.T) {
	for name, damage := range map[string]func(archive backup.Archive, plan *RestorePlan) error{
		"": func(backup.Archive, *RestorePlan) error { return nil },
		"a part is damaged": func(archive backup.Archive, p *RestorePlan) error {
			_, err := archive.Store.Put(t.Context(), backup.Key("old", p.Backup.ID, "part-00003"), []byte("x"))
			return err
		},
		"a part is missing": func(archive backup.Archive, p *RestorePlan) error {
			return archive.Store.Delete(t.Context(), backup.Key("old", p.Backup.ID, "part-00000"))
		},
		"it was deleted": func(archive backup.Archive, p *RestorePlan) error { return archive.Delete(t.Context(), p.Backup.ID) },
		"the key cannot be opened": func(_ backup.Archive, p *RestorePlan) error {
			p.Cluster = "other" // see below
			return nil
		},
		"the volume is too small": func(_ backup.Archive, p *RestorePlan) error {
			p.Members[0].volumeSize = 100 << 20
			return nil
		},
		"the root disk of the machine that restores is too full": func(_ backup.Archive, p *RestorePlan) error {
			p.Members[0].rootDisk = report.Disk{Path: "/", SizeBytes: 20 << 30, UsedBytes: 19<<30 + 1}
			return nil
		},
		"the root disk of another machine is full": func(_ backup.Archive, p *RestorePlan) error {
			full := report.Disk{Path: "/", SizeBytes: 20 << 30, UsedBytes: 20 << 30}
			p.Members = append(p.Members, Member{Slot: "b", Name: "etcd-b", rootDisk: full})
			return nil
		},
		"skipped": func(archive backup.Archive, p *RestorePlan) error {
			p.SkipVerification = true
			return archive.Store.Delete(t.Context(), backup.Key("old", p.Backup.ID, "part-00000"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTwoClusters(t)
			plan := RestorePlan{
				Cluster: "old", Backup: c.source.backup, Generation: 2, Slot: "a", Members: []Member{{Slot: "a", Name: "etcd-a"}},
			}
			if err := damage(c.from, &plan); err != nil {
				t.Fatal(err)
			}
			a := &Admin{name: "old", archive: c.from, env: &cluster.Env{Now: time.Now}, authority: c.authority}
			if plan.Cluster == "other" {
				a.archive.Sealer = c.to.Sealer
			}
			err := a.restoreLocked(t.Context(), plan, -time.Second) // nobody restores it
			keys, listErr := c.from.Store.List(t.Context(), node.EtcdGenerationPrefix("old"))
			if listErr != nil {
				t.Fatal(listErr)
			}
			begun := name == "" || name == "skipped" || strings.Contains(name, "another machine")
			if (len(keys) == 1) != begun || err == nil || strings.Contains(err.Error(), "has not ended") != begun {
				t.Errorf("generations %v: %v", keys, err)
			}
		})
	}
}

// expiringStore deletes a backup once its last part has been read.
type expiringStore struct {
	store.Store

	archive backup.Archive
	backup  backup.Backup
}

func (s expiringStore) Get(ctx context.Context, key string) (store.Object, error) {
	o, err := s.Store.Get(ctx, key)
	if key == backup.Key("old", s.backup.ID, fmt.Sprintf("part-%05d", s.backup.Parts-1)) {
		err = errors.Join(err, s.archive.Delete(ctx, s.backup.ID))
	}

	return o, err
}

// TestBackupThatExpiresMeanwhile: a backup that machines delete while it is checked stops nothing.
func TestBackupThatExpiresMeanwhile(t *testing.T) {
	c := newTwoClusters(t)
	plan := RestorePlan{Cluster: "old", Backup: c.source.backup, Generation: 2, Slot: "a", Members: []Member{{Slot: "a", Name: "etcd-a"}}}
	archive := c.from
	archive.Store = expiringStore{Store: c.from.Store, archive: c.from, backup: plan.Backup}
	a := &Admin{name: "old", archive: archive, env: &cluster.Env{Now: time.Now}, authority: c.authority}
	err := a.restoreLocked(t.Context(), plan, -time.Second)
	if err == nil || !strings.Contains(err.Error(), "was deleted while it was checked (nothing was changed)") {
		t.Errorf("restored a backup that is gone: %v", err)
	}

	keys, err := c.from.Store.List(t.Context(), node.EtcdGenerationPrefix("old"))
	if err != nil || len(keys) > 0 {
		t.Errorf("generations %v, %v", keys, err)
	}
}
