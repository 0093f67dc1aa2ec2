// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// readEach calls read for all items concurrently. It returns the results in the order of the items,
// also with an error.
func readEach[T any](items []T, read func(T) ([]plan.ActualResource, error)) ([]plan.ActualResource, error) {
	found := make([][]plan.ActualResource, len(items))
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { found[i], errs[i] = read(item) })
	}

	wg.Wait()

	return slices.Concat(found...), errors.Join(errs...)
}

// runBoth runs f and g concurrently.
func runBoth(f, g func() error) error {
	var wg sync.WaitGroup
	var first, second error
	wg.Go(func() { first = f() })
	wg.Go(func() { second = g() })
	wg.Wait()

	return errors.Join(first, second)
}
