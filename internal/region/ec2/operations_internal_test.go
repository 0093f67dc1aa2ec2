// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func newTestService(t *testing.T) *Service {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := New(Config{
		Region:  "us-east-1",
		Account: "000000000000",
		Now:     func() time.Time { return now },
		Rand:    rand.New(rand.NewSource(1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCreatedKindsAreOperations checks that IAM is not asked about operations that do not exist.
func TestCreatedKindsAreOperations(t *testing.T) {
	t.Parallel()
	ops := newTestService(t).Wire().Ops
	for name := range createdKinds() {
		if !slices.ContainsFunc(ops, func(op wire.Op) bool { return op.Name == name }) {
			t.Errorf("%s is not an operation", name)
		}
	}
}
