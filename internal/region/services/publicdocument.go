// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	awss3 "github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxPublicDocument is the size of the largest document that is fetched, in bytes.
const maxPublicDocument = 1 << 20

// fetchPublicDocument returns the object of the region's S3 at an https URL, as everybody can read it. STS reads the
// documents of OpenID Connect providers in this way. The region does not connect to other hosts.
func (s *Services) fetchPublicDocument(ctx context.Context, address string) ([]byte, error) {
	bucket, key, err := s.parseObjectURL(address)
	if err != nil {
		return nil, err
	}

	// AWS's own request, not that of the caller: over TLS, from an address that no policy names.
	ctx = wire.WithCaller(ctx, wire.AnonymousCaller())
	ctx = wire.WithAuthorizer(ctx, s.IAM)
	ctx = wire.WithConditionKeys(ctx, map[string][]string{"aws:SecureTransport": {"true"}})
	out, err := wire.CallOperation(ctx, s.S3.Wire(), "GetObject", func(in any) error {
		get, ok := in.(*awss3.GetObjectInput)
		if !ok {
			return fmt.Errorf("read %s: input is %T", address, in)
		}

		get.Bucket = &bucket
		get.Key = &key

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", address, err)
	}

	got, ok := out.(*awss3.GetObjectOutput)
	if !ok || got.Body == nil {
		return nil, fmt.Errorf("read %s: no body", address)
	}

	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(got.Body, maxPublicDocument+1))
	if err == nil && len(body) > maxPublicDocument {
		err = errors.New("the document is too large")
	}

	return body, err
}

// parseObjectURL returns the bucket and the key of an https URL of the region's S3, with the bucket in the host or in
// the path.
func (s *Services) parseObjectURL(address string) (bucket, key string, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.RawQuery != "" {
		return "", "", fmt.Errorf("read %s: not an https URL of an object", address)
	}

	host := "s3." + s.cfg.Region + ".amazonaws.com"
	if strings.HasPrefix(s.cfg.Region, "cn-") {
		host += ".cn"
	}

	path := strings.TrimPrefix(u.Path, "/")
	if u.Host == host {
		bucket, key, _ = strings.Cut(path, "/")
	} else if name, ok := strings.CutSuffix(u.Host, "."+host); ok {
		bucket = name
		key = path
	}

	if bucket == "" || key == "" {
		return "", "", fmt.Errorf("read %s: the region's S3 is https://BUCKET.%s/KEY", address, host)
	}

	return bucket, key, nil
}
