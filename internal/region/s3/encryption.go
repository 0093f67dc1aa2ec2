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

// The headers that say how an object is encrypted. Bodies lie in the region's own folder as they came: what is true
// to AWS is who may read them, since the key's policy is asked on every read and write.
const (
	sseHeader       = "X-Amz-Server-Side-Encryption"
	sseKeyHeader    = "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
	sseBucketHeader = "X-Amz-Server-Side-Encryption-Bucket-Key-Enabled"
)

// resolveEncryption says how a new object is encrypted, by its request or by the bucket's default, as headers of the object.
// With KMS the caller must be allowed to make a data key.
func (s *Service) resolveEncryption(ctx context.Context, name, key string) (map[string]string, error) {
	s.mu.RLock()
	b, err := s.findBucket(&name)
	var rule s3.ServerSideEncryptionRule
	if err == nil {
		rule, err = b.encryptionRule()
	}

	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}

	out := requestedEncryption(wire.HTTPRequest(ctx).Header, rule)

	switch out[sseHeader] {
	case s3.ServerSideEncryptionAes256:
		if out[sseKeyHeader] != "" {
			return nil, wire.Errorf(
				"InvalidArgument",
				"Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
			)
		}

		return out, nil

	case s3.ServerSideEncryptionAwsKms:
	default:
		return nil, wire.Errorf(
			"InvalidEncryptionAlgorithmError",
			"The encryption request you specified is not valid: %s",
			out[sseHeader],
		)
	}

	arn, err := s.authorizeKey(ctx, "GenerateDataKey", name, key, out)
	if arn != "" {
		out[sseKeyHeader] = arn
	}

	return out, err
}

// requestedEncryption is the encryption that a request's headers ask for, or else the bucket's default, or else S3's.
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

// encryptionRule is the bucket's default encryption.
func (b *bucket) encryptionRule() (s3.ServerSideEncryptionRule, error) {
	var c s3.ServerSideEncryptionConfiguration
	raw, ok := b.Config["BucketEncryption"]
	if !ok {
		return s3.ServerSideEncryptionRule{}, nil
	}

	if err := json.Unmarshal(raw, &c); err != nil || len(c.Rules) == 0 {
		return s3.ServerSideEncryptionRule{}, err
	}

	return *c.Rules[0], nil
}

// authorizeKey asks KMS for the caller's right to an object's key, with the encryption context that S3 uses: the object's
// ARN, or the bucket's where the bucket has a key of its own. An object that KMS has no part in needs no right.
func (s *Service) authorizeKey(
	ctx context.Context,
	action, name, key string,
	h map[string]string,
) (string, error) {
	if h[sseHeader] != s3.ServerSideEncryptionAwsKms || s.cfg.Keys == nil {
		return h[sseKeyHeader], nil
	}

	id := h[sseKeyHeader]
	if id == "" {
		return "", wire.Errorf("KMS.NotFoundException", "the region has no key alias/aws/s3; name a key")
	}

	resource := "arn:aws:s3:::" + name
	if h[sseBucketHeader] == "" {
		resource += "/" + key
	}

	arn, err := s.cfg.Keys.UseKey(ctx, action, id, "s3", map[string]string{"aws:s3:arn": resource})
	var e *wire.Error
	if errors.As(err, &e) && strings.HasSuffix(e.Code, "Exception") {
		return "", &wire.Error{Code: "KMS." + e.Code, Message: e.Message, Status: http.StatusBadRequest}
	}

	return arn, err
}

// setEncryptionHeaders puts an object's encryption into the answer to a write.
func setEncryptionHeaders(ctx context.Context, h map[string]string) {
	for _, name := range []string{sseHeader, sseKeyHeader, sseBucketHeader} {
		if h[name] != "" {
			wire.SetResponseHeader(ctx, name, h[name])
		}
	}
}
