// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// Snapshot is all that a region knows but the objects in its buckets: the saved state of each service, by its name. It
// is not changed by the regions that are started from it.
type Snapshot map[string][]byte

// snapshotBackend keeps what services save in a snapshot. They save after every change, which a test does not need: it is kept
// only while a snapshot is taken.
type snapshotBackend struct {
	snapshot  Snapshot
	recording bool
}

func (s Snapshot) newBackend() *snapshotBackend { return &snapshotBackend{snapshot: s} }

// Load implements [state.Backend].
func (m *snapshotBackend) Load(name string, v any) error {
	b, ok := m.snapshot[name]
	if !ok {
		return nil
	}

	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("start from the snapshot of %s: %w", name, err)
	}

	return nil
}

// Save implements [state.Backend].
func (m *snapshotBackend) Save(name string, v any) error {
	if !m.recording {
		return nil
	}

	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("take a snapshot of %s: %w", name, err)
	}

	m.snapshot[name] = b

	return nil
}

// Snapshot is what the region knows now. CloudFormation comes first: as after a crash, it may not have noted what was made.
// What it had not begun must not be there, though: if it goes on meanwhile, the snapshot is taken anew. Auto Scaling comes
// before EC2: it knows instances only as EC2 does.
func (r Region) Snapshot(t T) Snapshot {
	t.Helper()
	for range 1000 {
		m := &snapshotBackend{snapshot: Snapshot{}, recording: true}
		if err := r.services.SaveTo(m); err != nil {
			t.Fatal(err)
		}

		taken := maps.Clone(m.snapshot)
		if err := r.services.CloudFormation.SaveTo(m); err != nil {
			t.Fatal(err)
		}

		if maps.EqualFunc(taken, m.snapshot, bytes.Equal) {
			return taken
		}
	}

	t.Fatal("stacks never stand still for a snapshot")

	return nil
}
