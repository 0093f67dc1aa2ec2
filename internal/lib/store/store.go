// SPDX-License-Identifier: Apache-2.0

// Package store keeps a cluster's intent, keys and node documents as objects under keys, in a folder or an S3 bucket.
// It knows nothing of what the objects mean.
package store

import (
	"context"
	"errors"
)

// The errors that callers decide on; implementations wrap them.
var (
	// ErrNotFound says that there is no object under the key.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that a conditional write found another version than it was told to expect.
	ErrConflict = errors.New("changed by somebody else")
)

// Object is a stored object. ETag is opaque and changes whenever Body does.
type Object struct {
	Key  string
	Body []byte
	ETag string
}

// Store is a flat name space of objects. Keys are slash-separated, relative, without "..". Every write is atomic:
// a reader sees the old object or the new one. Every implementation passes storetest.Run.
type Store interface {
	// URL of the store, without secrets.
	URL() string
	// Get returns an error wrapping ErrNotFound if there is no such object.
	Get(ctx context.Context, key string) (Object, error)
	// Put writes unconditionally and returns the new ETag.
	Put(ctx context.Context, key string, body []byte) (etag string, err error)
	// Create writes only if there is no such object, else it returns an error wrapping ErrConflict.
	Create(ctx context.Context, key string, body []byte) (etag string, err error)
	// Update writes only if the object still has etag, else it returns an error wrapping ErrConflict.
	Update(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
	// Delete removes the object; that there is none is no error.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with prefix, sorted.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Sealer encrypts small secrets for one store. What a secret is bound to is authenticated, not hidden: the same must be given to Open.
type Sealer interface {
	Seal(ctx context.Context, plaintext []byte, bound map[string]string) ([]byte, error)
	// Open fails on a wrong key or context; the error never shows secret bytes.
	Open(ctx context.Context, sealed []byte, bound map[string]string) ([]byte, error)
}
