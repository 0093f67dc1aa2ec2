// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxKeyBytes is the longest key in bytes: S3's limit of 1024, less some space for the prefix of
// the store.
const maxKeyBytes = 900

// checkKey returns an error for a key that would leave the store, or name different objects in
// different stores.
func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKeyBytes || strings.ContainsAny(key, "\\\x00") ||
		isInternalName(path.Base(key)) {
		return fmt.Errorf("invalid key %q: use a relative path without \"..\"", key)
	}

	return nil
}

// checkRequest returns an error if the context has ended or the key is invalid.
func checkRequest(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	return checkKey(key)
}
