// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
)

// ReadKey reads one key through the member at url. It returns nil if the key does not exist.
func ReadKey(ctx context.Context, m Manager, url, key string) ([]byte, error) {
	c, err := m.newClient(url)
	if err != nil {
		return nil, err
	}

	defer func() { _ = c.Close() }()
	got, err := c.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s through %s: %w", key, url, err)
	}

	if len(got.Kvs) == 0 {
		return nil, nil
	}

	return got.Kvs[0].Value, nil
}
