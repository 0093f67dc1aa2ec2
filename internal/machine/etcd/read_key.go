// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
)

// ReadKey reads one key through the member at url; it is empty if there is none.
func ReadKey(ctx context.Context, m Manager, url, key string) ([]byte, error) {
	c, err := m.newClient(url)
	if err != nil {
		return nil, err
	}

	defer c.Close() //nolint:errcheck // nothing was written
	got, err := c.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s through %s: %w", key, url, err)
	}

	if len(got.Kvs) == 0 {
		return nil, nil
	}

	return got.Kvs[0].Value, nil
}
