// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// TestHashIsCompared: a test of which only the revision and the number of keys were compared does not say that the contents were.
func TestHashIsCompared(t *testing.T) {
	known := backup.Contents{Revision: 7, Keys: 3, HashKV: 9}
	unhashed := backup.Contents{Revision: 7, Keys: 3}
	compacted := backup.Contents{Revision: 7, Keys: 3, HashKV: 8, CompactRevision: 5}
	changed := backup.Contents{Revision: 7, Keys: 3, HashKV: 8}
	for name, c := range map[string]struct {
		restored, want backup.Contents
		hashCompared   bool
		hasProblem     bool
	}{
		"the same hash":            {known, known, true, false},
		"another hash":             {changed, known, true, true},
		"a hash that is not known": {known, unhashed, false, false},
		"no hash of the restored":  {unhashed, known, false, false},
		"compacted meanwhile":      {compacted, known, false, false},
	} {
		got := testResult{}.compare(c.restored, c.want)
		if got.hashCompared != c.hashCompared || (got.problem != "") != c.hasProblem || got.restored != c.restored {
			t.Errorf("%s: %+v", name, got)
		}
	}

	first := testResult{}.compare(known, known)
	if second := first.compare(compacted, known); !second.hashCompared || second.problem != "" {
		t.Errorf("a hash was compared first: %+v", second)
	}
}

// TestHashTimeout: a member of 8 GiB was asked for 30 seconds, within which it cannot hash its data, so its backups were never compared.
func TestHashTimeout(t *testing.T) {
	for _, c := range []struct {
		bytes       int64
		hash, serve time.Duration
	}{
		{0, 30 * time.Second, 2 * time.Minute},
		{500 << 20, 61 * time.Second, 2*time.Minute + 31*time.Second},
		{8 << 30, 542 * time.Second, 632 * time.Second},
	} {
		if hash, serve := hashTimeout(c.bytes), serveTimeout(c.bytes); hash != c.hash || serve != c.serve {
			t.Errorf("%d bytes: %s and %s, want %s and %s", c.bytes, hash, serve, c.hash, c.serve)
		}
	}
}

// TestRealTestWithoutHash: a backup whose member was not asked, of an etcdutl that computes no hash of a database with leases, counted as
// restored in a test as if its values had been compared. It says so now, and the next backup is compared.
func TestRealTestWithoutHash(t *testing.T) {
	r := newRealMember(t)
	if _, err := r.client.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}

	m, err := r.backup.take(t.Context(), backup.Metadata{Reason: backup.ReasonSchedule})
	if err != nil {
		t.Fatal(err)
	}

	m.HashKV = 0
	m.Said = backup.Contents{}
	if err := r.backup.verify(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	if v := r.list()[0].Verification; v == nil || !v.OK || v.HashCompared {
		t.Fatalf("without a hash: %+v", v)
	}

	r.now = r.now.Add(61 * time.Minute)
	r.run()
	all := r.list()
	if len(all) != 2 || all[1].Verification == nil || !all[1].Verification.OK || !all[1].Verification.HashCompared {
		t.Fatalf("the next backup: %+v", all)
	}
}
