// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// each reads something of every item at once, and returns what was found in the order of the items.
func each[T any](items []T, read func(T) ([]plan.Actual, error)) ([]plan.Actual, error) {
	found, errs := make([][]plan.Actual, len(items)), make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { found[i], errs[i] = read(item) })
	}
	wg.Wait()
	return slices.Concat(found...), errors.Join(errs...)
}

// both runs f and g at once.
func both(f, g func() error) error {
	var wg sync.WaitGroup
	var first, second error
	wg.Go(func() { first = f() })
	wg.Go(func() { second = g() })
	wg.Wait()
	return errors.Join(first, second)
}
