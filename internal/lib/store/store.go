// SPDX-License-Identifier: Apache-2.0

// Package store stores a cluster's manifests, keys and node documents as objects, in a folder or an
// S3 bucket.
//
// A Store has conditional writes, on which the cluster's lock and journal rely. A Sealer encrypts
// secrets: with AWS KMS for a store in S3, with age for a store in a folder. A View reads many
// objects of a Store with few requests. PlanInit creates a store, and Open opens one.
//
// The package does not know what the objects contain. All implementations pass the tests of package
// storetest.
package store

import (
	"context"
	"errors"
)

// The errors that callers distinguish. Implementations wrap them.
var (
	// ErrNotFound means that no object has the key.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that a conditional write found another version of the object than expected,
	// or found an object where none was expected.
	ErrConflict = errors.New("changed by another writer")
)

// Object is a stored object.
type Object struct {
	// Key of the object in its store, such as demo/cluster.yaml.
	Key string
	// Body is the content.
	Body []byte
	// ETag identifies the content. It is opaque, and changes whenever Body changes.
	ETag string
}

// Store is a flat namespace of objects. Keys are relative paths with slashes, without "..". Every
// write is atomic: a reader sees either the old object or the new one. Methods may be called
// concurrently.
type Store interface {
	// URL returns the URL of the store, which contains no secret.
	URL() string
	// Get returns an object. The error wraps ErrNotFound if no object has the key.
	Get(ctx context.Context, key string) (Object, error)
	// Put creates or replaces an object and returns its new ETag.
	Put(ctx context.Context, key string, body []byte) (etag string, err error)
	// Create creates an object and returns its ETag. The error wraps ErrConflict if the object
	// already exists.
	Create(ctx context.Context, key string, body []byte) (etag string, err error)
	// Update replaces an object that still has etag, and returns its new ETag. The error wraps
	// ErrConflict if the object has another ETag.
	Update(ctx context.Context, key string, body []byte, etag string) (newETag string, err error)
	// Delete removes an object. It returns nil if the object does not exist.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with prefix, in sorted order.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Sealer encrypts small secrets for one store. Each secret is bound to a context of key-value
// pairs. The context is authenticated but not encrypted, and Open requires the same context as
// Seal.
type Sealer interface {
	// Seal encrypts plaintext and binds it to a context.
	Seal(ctx context.Context, plaintext []byte, bound map[string]string) ([]byte, error)
	// Open decrypts what Seal returned. The error wraps ErrDecryption if the key or the context is
	// wrong, or if the sealed bytes are damaged. It never contains secret bytes.
	Open(ctx context.Context, sealed []byte, bound map[string]string) ([]byte, error)
}
