// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxKeyBytes is S3's limit on a key in bytes, with room left for the store's prefix.
const maxKeyBytes = 900

// checkKey refuses keys that would leave the store, or mean different objects in different stores.
func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKeyBytes || strings.ContainsAny(key, "\\\x00") ||
		isInternalName(path.Base(key)) {
		return fmt.Errorf("key %q is not a relative path without \"..\"", key)
	}

	return nil
}

func checkRequest(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	return checkKey(key)
}
