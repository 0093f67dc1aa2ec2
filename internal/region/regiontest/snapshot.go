// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Snapshot is all that a region knows but the objects in its buckets: the saved state of each service, by its name. It
// is not changed by the regions that are started from it.
type Snapshot map[string][]byte

// memory keeps what services save in a snapshot. They save after every change, which a test does not need: it is kept
// only while a snapshot is taken.
type memory struct {
	kept    Snapshot
	keeping bool
}

func (s Snapshot) saver() *memory { return &memory{kept: s} }

// Load implements record.Saver.
func (m *memory) Load(name string, v any) error {
	b, ok := m.kept[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("start from the snapshot of %s: %w", name, err)
	}
	return nil
}

// Save implements record.Saver.
func (m *memory) Save(name string, v any) error {
	if !m.keeping {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("take a snapshot of %s: %w", name, err)
	}
	m.kept[name] = b
	return nil
}

// Snapshot is what the region knows now. CloudFormation comes first: as after a crash, it may not have noted what was made.
// Auto Scaling comes before EC2: it knows instances only as EC2 does.
func (r Region) Snapshot(t T) Snapshot {
	t.Helper()
	m := &memory{kept: Snapshot{}, keeping: true}
	for _, save := range []func() error{
		func() error { return r.parts.stacks.SaveTo(m) }, func() error { return r.parts.iam.SaveTo(m) }, func() error { return r.parts.kms.SaveTo(m) },
		func() error { return r.parts.scaling.SaveTo(m) }, func() error { return r.parts.elb.SaveTo(m) },
		func() error { return r.parts.ec2.SaveTo(m) },
	} {
		if err := save(); err != nil {
			t.Fatal(err)
		}
	}
	return maps.Clone(m.kept)
}
