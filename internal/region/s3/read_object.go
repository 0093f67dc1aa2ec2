// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ReadObject returns an object for another service of the region, such as Lambda, with the rights of the caller in ctx,
// who also must be allowed to decrypt it. version is empty for the newest one. A refusal is a [wire.Error].
func (s *Service) ReadObject(ctx context.Context, bucket, key, version string) ([]byte, error) {
	var id *string
	if version != "" {
		id = &version
	}

	if err := s.authorizeObject(ctx, objectReadAction(id), bucket, key); err != nil {
		return nil, err
	}

	v, f, err := s.openVersion(ctx, &bucket, &key, id)
	if err != nil {
		return nil, err
	}

	if _, err := s.authorizeKey(ctx, "Decrypt", bucket, key, v.Headers); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	body, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read s3://%s/%s: %w", bucket, key, err)
	}

	return body, nil
}
