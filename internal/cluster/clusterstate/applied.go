// SPDX-License-Identifier: Apache-2.0

package clusterstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// LastAppliedKey is the key of the last-applied record.
func LastAppliedKey(cluster string) string { return cluster + "/applied.json" }

// ReadLastApplied returns the last-applied record and the object that it was read from. Both are zero if
// nothing is recorded. With an error, a set ETag means that the object exists and cannot be parsed: an apply
// then overwrites it.
func ReadLastApplied(
	ctx context.Context,
	s store.Store,
	cluster string,
) (plan.LastApplied, store.Object, error) {
	key := LastAppliedKey(cluster)
	o, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return plan.LastApplied{}, store.Object{}, nil
	}

	if err != nil {
		return plan.LastApplied{}, o, err
	}

	a, err := plan.ParseLastApplied(o.Body)
	if err != nil {
		return a, o, diag.WithHint(
			fmt.Errorf("%s in %s %w", key, s.URL(), err),
			"rewrite it with: slipway apply "+cluster+"",
		)
	}

	return a, o, nil
}

// ReplaceObject updates the object that was read as was, or creates it if was has no ETag. It returns the
// object written.
func ReplaceObject(ctx context.Context, s store.Store, o, was store.Object) (_ store.Object, err error) {
	if was.ETag == "" {
		o.ETag, err = s.Create(ctx, o.Key, o.Body)
	} else {
		o.ETag, err = s.Update(ctx, o.Key, o.Body, was.ETag)
	}

	return o, err
}

// SameApplied reports whether two records differ only in who wrote them and when.
func SameApplied(a, b plan.LastApplied) bool {
	b.Token = a.Token
	b.AppliedAt = a.AppliedAt
	b.AppliedBy = a.AppliedBy
	b.Tool = a.Tool
	x, errX := a.Encode()
	y, errY := b.Encode()

	return errX == nil && errY == nil && bytes.Equal(x, y)
}
