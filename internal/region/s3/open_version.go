// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"os"
	"path/filepath"
)

// openVersion returns a version of an object and its open body. The file of a version may be deleted between the
// lookup and the open, when the object is replaced: then the version that replaced it is opened.
func (s *Service) openVersion(ctx context.Context, name, key, id *string) (objectVersion, *os.File, error) {
	missing := ""

	for {
		v, err := s.findVersion(ctx, name, key, id)
		if err != nil {
			return v, nil, err
		}

		if v.File == missing {
			return v, nil, newNoSuchKeyError(*key)
		}

		f, err := os.Open(filepath.Join(s.bucketDir(*name), v.File))
		if err == nil {
			return v, f, nil
		}

		missing = v.File
	}
}
