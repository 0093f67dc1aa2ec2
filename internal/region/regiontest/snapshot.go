// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// Snapshot is the saved state of each service, by its name, without the objects of S3 and the parameters of
// SSM. Starting a region from a snapshot does not change the snapshot.
type Snapshot map[string][]byte

// snapshotBackend is a [state.Backend] that loads from a snapshot. It discards what services save, except
// while a new snapshot is taken.
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

// Snapshot returns the current state of the region; see services.SaveTo for the order. CloudFormation is
// saved again at the end: if its state has changed meanwhile, the snapshot is taken again, because it could
// contain a resource that CloudFormation had not begun to create.
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

	t.Fatal("the stacks changed during each of 1000 attempts to take a snapshot")

	return nil
}
