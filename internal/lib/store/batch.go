// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
)

// BatchDeleter is a Store that deletes many objects with few requests.
type BatchDeleter interface {
	// DeleteAll removes objects, in any order. It ignores objects that do not exist. After an error
	// it may have removed some of them.
	DeleteAll(ctx context.Context, keys []string) error
}

// BatchCreator is a Store that has its own way to create many objects, such as a guarded store.
type BatchCreator interface {
	// CreateAll creates objects concurrently and returns their ETags in the order of objects.
	CreateAll(ctx context.Context, objects []Object) (etags []string, err error)
}

// DeleteAll removes objects from s: with few requests if s is a BatchDeleter, otherwise one after
// the other.
func DeleteAll(ctx context.Context, s Store, keys []string) error {
	if batch, ok := s.(BatchDeleter); ok {
		return batch.DeleteAll(ctx, keys)
	}

	for _, key := range keys {
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
	}

	return nil
}

// OrderedDeleter is a Store that has its own way to delete an object after others, such as a guarded
// store.
type OrderedDeleter interface {
	// DeleteAllThen removes keys, in any order, and then last.
	DeleteAllThen(ctx context.Context, keys []string, last string) error
}

// DeleteAllThen removes objects from s, and then last.
func DeleteAllThen(ctx context.Context, s Store, keys []string, last string) error {
	if ordered, ok := s.(OrderedDeleter); ok {
		return ordered.DeleteAllThen(ctx, keys, last)
	}

	if err := DeleteAll(ctx, s, keys); err != nil {
		return err
	}

	return s.Delete(ctx, last)
}

// maxConcurrentWrites limits the objects that CreateAll writes at a time. 64 writes at a time keep
// below S3's limit of 3,500 writes a second for one prefix.
const maxConcurrentWrites = 64

// CreateAll creates objects concurrently and returns their ETags in the order of objects. The error
// wraps ErrConflict if one of them already exists; the others are created nevertheless.
func CreateAll(ctx context.Context, s Store, objects []Object) ([]string, error) {
	if batch, ok := s.(BatchCreator); ok {
		return batch.CreateAll(ctx, objects)
	}

	etags := make([]string, len(objects))
	errs := make([]error, len(objects))
	slots := make(chan struct{}, maxConcurrentWrites)
	var wg sync.WaitGroup

	for i, o := range objects {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			etags[i], errs[i] = s.Create(ctx, o.Key, o.Body)
		})
	}

	wg.Wait()

	return etags, errors.Join(errs...)
}
