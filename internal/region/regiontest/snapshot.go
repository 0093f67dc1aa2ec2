// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/slipway-k8s/slipway/internal/region/record"
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
// What it had not begun must not be there, though: if it goes on meanwhile, the snapshot is taken anew. Auto Scaling comes
// before EC2: it knows instances only as EC2 does.
func (r Region) Snapshot(t T) Snapshot {
	t.Helper()
	for range 1000 {
		m := &memory{kept: Snapshot{}, keeping: true}
		save := func(services ...interface{ SaveTo(record.Saver) error }) {
			for _, s := range services {
				if err := s.SaveTo(m); err != nil {
					t.Fatal(err)
				}
			}
		}
		p := r.parts
		save(p.stacks, p.iam, p.kms, p.names, p.scaling, p.elb, p.ec2)
		taken := maps.Clone(m.kept)
		save(p.stacks)
		if maps.EqualFunc(taken, m.kept, bytes.Equal) {
			return taken
		}
	}
	t.Fatal("stacks never stand still for a snapshot")
	return nil
}
