// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxKey is S3's limit on a key in bytes, with room left for the store's prefix.
const maxKey = 900

// checkKey refuses keys that would leave the store, or mean different objects in different stores.
func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKey || strings.ContainsAny(key, "\\\x00") || internalName(path.Base(key)) {
		return fmt.Errorf("key %q is not a relative path without \"..\"", key)
	}
	return nil
}

func readyFor(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}
