// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The headers that describe the encryption of an object. The region stores bodies unencrypted in its own
// directory. Who may read them is as in AWS: every read and write checks the policy of the key.
const (
	sseHeader       = "X-Amz-Server-Side-Encryption"
	sseKeyHeader    = "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
	sseBucketHeader = "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled"
)

// resolveEncryption returns the encryption headers of a new object: those of the request, or else the
// bucket's default. With KMS, the caller must be allowed to generate a data key.
func (s *Service) resolveEncryption(ctx context.Context, name, key string) (map[string]string, error) {
	var rule s3.ServerSideEncryptionRule
	err := s.viewBucket(&name, func(b *bucket) (err error) {
		rule, err = b.encryptionRule()
		return err
	})
	if err != nil {
		return nil, err
	}

	out := requestedEncryption(wire.HTTPRequest(ctx).Header, rule)

	switch out[sseHeader] {
	case s3.ServerSideEncryptionAes256:
		if out[sseKeyHeader] != "" {
			return nil, newArgumentError(
				"x-amz-server-side-encryption",
				out[sseHeader],
				"Server Side Encryption with AWS KMS managed key requires HTTP header "+
					"x-amz-server-side-encryption : aws:kms",
			)
		}

		return out, nil

	case s3.ServerSideEncryptionAwsKms:
	case s3.ServerSideEncryptionAwsKmsDsse:
		return nil, wire.NotImplemented("x-amz-server-side-encryption: " + out[sseHeader])
	default:
		return nil, newError(invalidEncryption, detail("ArgumentValue", out[sseHeader]))
	}

	arn, err := s.authorizeKey(ctx, "GenerateDataKey", name, key, out)
	if arn != "" {
		out[sseKeyHeader] = arn
	}

	return out, err
}

// requestedEncryption returns the encryption that a request's headers ask for, or else the bucket's default,
// or else AES256, which is the default of S3.
func requestedEncryption(h http.Header, rule s3.ServerSideEncryptionRule) map[string]string {
	out := map[string]string{}
	for _, name := range []string{sseHeader, sseKeyHeader, sseBucketHeader} {
		if value := h.Get(name); value != "" {
			out[name] = value
		}
	}

	if d := rule.ApplyServerSideEncryptionByDefault; d != nil && out[sseHeader] == "" {
		out[sseHeader] = stringValue(d.SSEAlgorithm)
		if id := stringValue(d.KMSMasterKeyID); id != "" && out[sseKeyHeader] == "" {
			out[sseKeyHeader] = id
		}

		if isTrue(rule.BucketKeyEnabled) {
			out[sseBucketHeader] = "true"
		}
	}

	if out[sseHeader] == "" {
		out[sseHeader] = s3.ServerSideEncryptionAes256
	}

	return out
}

// encryptionRule returns the bucket's default encryption.
func (b *bucket) encryptionRule() (s3.ServerSideEncryptionRule, error) {
	var c s3.ServerSideEncryptionConfiguration
	raw, ok := b.Config[encryptionSettingName]
	if !ok {
		return s3.ServerSideEncryptionRule{}, nil
	}

	if err := json.Unmarshal(raw, &c); err != nil || len(c.Rules) == 0 {
		return s3.ServerSideEncryptionRule{}, err
	}

	return *c.Rules[0], nil
}

// authorizeKey asks KMS whether the caller may use an object's key, with the encryption context that S3 uses:
// the ARN of the object, or of the bucket if it uses a bucket key. It returns the key's ARN. It allows
// everything for objects that are not encrypted with KMS.
func (s *Service) authorizeKey(
	ctx context.Context,
	action, name, key string,
	h map[string]string,
) (string, error) {
	if h[sseHeader] != s3.ServerSideEncryptionAwsKms || s.cfg.KMS == nil {
		return h[sseKeyHeader], nil
	}

	id := h[sseKeyHeader]
	if id == "" {
		return "", newErrorf(kmsKeyNotFound, "this region has no key alias/aws/s3: set a key ID").with()
	}

	resource := "arn:aws:s3:::" + name
	if h[sseBucketHeader] == "" {
		resource += "/" + key
	}

	arn, err := s.cfg.KMS.UseKey(ctx, action, id, "s3", map[string]string{"aws:s3:arn": resource})
	if e, ok := errors.AsType[*wire.Error](err); ok && strings.HasSuffix(e.Code, "Exception") {
		return "", newErrorf(kmsPrefix+errorCode(e.Code), "%s", e.Message).with()
	}

	return arn, err
}

// setEncryptionHeaders adds the encryption of an object to the response to a write.
func setEncryptionHeaders(ctx context.Context, h map[string]string) {
	for _, name := range []string{sseHeader, sseKeyHeader, sseBucketHeader} {
		if h[name] != "" {
			wire.SetResponseHeader(ctx, name, h[name])
		}
	}
}

// newETag returns the ETag of contents with a digest, according to the headers of their object. S3 makes ETags from what it
// stores: with a key of KMS that is not a digest of the contents, and another one for each write.
func newETag(digest string, headers map[string]string) string {
	if headers[sseHeader] == s3.ServerSideEncryptionAwsKms {
		return `"` + randomHex() + `"`
	}

	return digest
}
